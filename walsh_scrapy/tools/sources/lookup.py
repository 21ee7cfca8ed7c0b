"""Finding the source that an operator means by a URL, in any spelling."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.urls import canonical_url, host_of
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection

_ANYWHERE: Final = "a source, declared or in the state"


class UnknownSource(ValueError):
    """A URL is not that of any source; the message is one line and suggests the nearest."""


def find_sources(url: str, known: Collection[str], where: str = _ANYWHERE) -> list[str]:
    """Return the known URLs that ``url`` means: itself, or all with the same canonical URL.

    Raises UnknownSource if there is none; ``where`` is what it then is not.
    """
    if url in known:
        return [url]
    canonical = canonical_url(url)
    if same := [each for each in known if canonical_url(each) == canonical]:
        return same
    near = nearest(url, known)
    hint = f"; did you mean {near}?" if near else "; `scrapy sources --all` lists all sources"
    raise UnknownSource(printable(f"{url} is not {where}{hint}"))


def nearest(url: str, known: Collection[str]) -> str | None:
    """Return the known URL most similar to ``url``, by host first; None if no host is similar."""
    hosts: dict[str, list[str]] = {}
    for each in known:
        hosts.setdefault(host_of(each), []).append(each)
    for near in difflib.get_close_matches(host_of(url), hosts, n=1):
        return difflib.get_close_matches(url, hosts[near], n=1, cutoff=0.0)[0]
    return None
