"""The declared targets of a crawl (R6, decision 16): TOML, OPML, JSON or a plain list.

A file is taken whole or refused with one line that names the place and the reason; of a list that a
program exported, what cannot be asked for is left out and said.
"""

import difflib
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import urljoin

from w3lib.url import safe_url_string

from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.urls import LONGEST_DECLARED, canonical_url, origin_of, wire_url
from walsh_scrapy.sources.files import Declared, Reading, UnreadableSources, reader_for
from walsh_scrapy.sources.opml import OpmlError

Kind = Literal["feed", "llms"]

_KINDS: Final = ("feed", "llms")
_KEYS: Final = ("url", "kind", "name", "tags", "every")
_SHARD: Final = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")
_SCHEME: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")
_USER_INFO: Final = re.compile(r"[^:/\\?#]*:[/\\]*[^/\\?#]*@")

_log = logging.getLogger(__name__)


class SourcesError(ValueError):
    """A sources file or shard that cannot be used; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Source:
    """One declared target.

    `url` is spelled as Scrapy will ask for it, without fragment. `every` is how often at most,
    None for `WALSH_MIN_REVISIT`. `page` is the site it belongs to (`htmlUrl` of an OPML file).
    """

    url: str
    kind: Kind = "feed"
    name: str | None = None
    tags: tuple[str, ...] = ()
    every: timedelta | None = None
    page: str | None = None

    def pause(self, min_revisit: float) -> float:
        """Return the seconds that the operator leaves between two visits, at least."""
        return max(min_revisit, self.every.total_seconds() if self.every else 0.0)


def declared_urls(source: Source) -> tuple[str, ...]:
    """Return what a source declares: its URL; without a feed also its host's llms.txt."""
    if source.kind == "llms":
        return source.url, urljoin(source.url, "/llms.txt")
    return (source.url,)


def target_url(url: object) -> str:
    """Return a URL as a source has it: spelled as Scrapy will ask for it, without fragment.

    Raises SourcesError for what no crawl could ask for.
    """
    if not isinstance(url, str) or not url.strip():
        raise SourcesError("it has no URL; give it one that begins with https://")
    if _USER_INFO.match(url):  # not shown: it holds a password
        raise SourcesError("its URL holds a user name or password, which is never sent; remove it")
    scheme = _SCHEME.match(url)
    if scheme is None:
        raise SourcesError(f"{url[:80]!r} has no scheme; begin it with https:// or http://")
    if scheme[1].lower() not in {"http", "https"}:
        raise SourcesError(f"{url[:80]!r} is not http or https; only those are asked for")
    if not origin_of(url):
        raise SourcesError(f"{url[:80]!r} names no host that can be asked; check its spelling")
    try:
        target = safe_url_string(wire_url(url))
    except ValueError as error:
        raise SourcesError(f"{url[:80]!r} cannot be asked for: {error}") from None
    if len(target) > LONGEST_DECLARED:
        raise SourcesError(f"{url[:80]!r}... is longer than {LONGEST_DECLARED} characters")
    return target


def load_sources(path: str | Path) -> tuple[Source, ...]:
    """Read the sources of a `.toml`, `.opml`, `.xml`, `.json` or `.txt` file, in its order.

    The same target twice (canonical URL) is one source, as it is first declared, with the tags of
    all its places; a warning says so once. Wrong outlines of an OPML file are left out, with a
    warning each, unless nothing would be left. Raises SourcesError.
    """
    file = Path(path)
    read = reader_for(file.suffix)
    if read is None:
        raise SourcesError(
            f"{file}: sources are read from .toml, .opml, .xml, .json and .txt files; rename it"
        )
    body = _body(file)
    try:
        reading = read(body)
        wrong: list[str] = []
        kept, again = _once(_sound(reading, wrong))
    except (SourcesError, UnreadableSources, OpmlError) as error:
        raise SourcesError(f"{file}: {error}") from None
    if not kept:
        raise SourcesError(f"{file}: {_empty(wrong)}")
    if reading.remark:
        _log.warning("%s: %s", file, reading.remark)
    for reason in wrong:
        _log.warning("%s: left out: %s", file, reason)
    if again:
        more = f" and {len(again) - 3} more" if len(again) > 3 else ""
        shown = ", ".join(again[:3]) + more
        _log.warning("%s: declared before and counted once: %s", file, shown)
    return kept


def parse_shard(text: str) -> tuple[int, int]:
    """Read `I/N`, part I of N counted from 1. Raises SourcesError."""
    found = _SHARD.fullmatch(text.strip())
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise SourcesError(
            f"shard={text[:40]!r} is not I/N with I from 1 to N; write for example shard=1/2"
        )
    return int(found[1]), int(found[2])


def in_shard(host: str, index: int, count: int) -> bool:
    """Tell whether a host, as `host_of` spells it, belongs to part `index` (from 1) of `count`.

    By its SHA-256, so every machine comes to the same answer and a host is never split.
    """
    digest = hashlib.sha256(host.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest) % count == index - 1


def _body(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        why = "there is no such file; create it or name another with -a sources=FILE"
    except IsADirectoryError:
        why = "this is a folder; name a file in it"
    except (OSError, ValueError) as error:
        why = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
    raise SourcesError(f"{file}: {why}")


def _sound(reading: Reading, wrong: list[str]) -> Iterator[tuple[str, Source]]:
    """Yield each source and its place; ``wrong`` gets why others of an exported list are none."""
    for entry in reading.entries:
        try:
            yield entry.where, _source(entry)
        except SourcesError as error:
            if not reading.is_exported:
                raise
            wrong.append(str(error))


def _once(found: Iterable[tuple[str, Source]]) -> tuple[tuple[Source, ...], list[str]]:
    """Return each target once, and the places at which it is declared again."""
    kept: dict[str, Source] = {}
    again: list[str] = []
    for where, source in found:
        key = canonical_url(source.url)
        if key in kept:
            again.append(where)
            kept[key] = _joined(kept[key], source)
        else:
            kept[key] = source
    return tuple(kept.values()), again


def _joined(first: Source, other: Source) -> Source:
    return replace(
        first,
        name=first.name or other.name,
        tags=tuple(dict.fromkeys((*first.tags, *other.tags))),
        page=first.page or other.page,
    )


def _empty(wrong: list[str]) -> str:
    if not wrong:
        return "it declares no source; add one, at least its URL"
    if len(wrong) == 1:
        return wrong[0]
    return f"none of its {len(wrong)} sources can be asked for; {wrong[0]}"


def _source(declared: Declared) -> Source:
    value = declared.value
    try:
        _check_keys(value)
        return Source(
            url=target_url(value.get("url")),
            kind=_kind(value),
            name=_name(value),
            tags=_tags(value),
            every=_every(value),
            page=declared.page,
        )
    except SourcesError as error:
        raise SourcesError(f"{declared.where}: {error}") from None


def _check_keys(value: object) -> None:
    if not isinstance(value, dict):
        raise SourcesError("it is neither a URL nor a table with one")
    for key in value:
        if key not in _KEYS:
            raise SourcesError(f"unknown key {key[:40]!r}{_meant(key, _KEYS)}")


def _kind(value: dict[str, Any]) -> Kind:
    kind = value.get("kind", "feed")
    if kind not in _KINDS:
        raise SourcesError(f"unknown kind {kind!r:.40}{_meant(kind, _KINDS)}")
    return cast("Kind", kind)


def _name(value: dict[str, Any]) -> str | None:
    name = value.get("name")
    if name is not None and not isinstance(name, str):
        raise SourcesError("its name is no text; put it in quotes")
    return name or None


def _tags(value: dict[str, Any]) -> tuple[str, ...]:
    tags = value.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise SourcesError('its tags are no list of texts; write tags = ["news", "tech"]')
    return tuple(dict.fromkeys(tags))


def _every(value: dict[str, Any]) -> timedelta | None:
    every = value.get("every")
    if every is None:
        return None
    try:
        length = parse_duration(every) if isinstance(every, str) else None
    except ValueError as error:
        raise SourcesError(f"every: {error}") from None
    if not length:
        raise SourcesError('every is no length of time; write for example every = "P1D"')
    return length


def _meant(word: object, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(word)[:40].lower(), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
