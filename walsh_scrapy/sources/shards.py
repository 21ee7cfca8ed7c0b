"""Shards: which part of the hosts one of several processes crawls (`shard=I/N`)."""

import hashlib
import re
from typing import Final

from walsh_scrapy.sources.source import SourcesError

_SHARD: Final = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


def parse_shard(text: str) -> tuple[int, int]:
    """Read `I/N`, part I of N, counted from 1. Raises SourcesError."""
    found = _SHARD.fullmatch(text.strip())
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise SourcesError(
            f"shard={text[:40]!r} is not I/N with I from 1 to N; write for example shard=1/2"
        )
    return int(found[1]), int(found[2])


def in_shard(host: str, index: int, count: int) -> bool:
    """Return True if a host, as `host_of` spells it, is in part ``index`` (from 1) of ``count``.

    It depends on the SHA-256 of the host alone: every machine gets the same answer, and all sources
    of a host are in the same part.
    """
    digest = hashlib.sha256(host.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest) % count == index - 1
