"""Sources that the operator declares: a feed, or a page with markdown or an llms.txt.

The tables `[defaults.TAG]` of a TOML file have `every` and `delay` for the sources with a tag.

The sources that a run declared are kept as a document for the audit. It has one line for each
source, with its kind and its URL. A large document is stored in parts, and each source is in the
part that the key of its URL selects (`policy.urls.url_key`). The document itself is then a list of
the names of the parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urljoin

from walsh_scrapy.policy.urls import (
    MAX_DECLARED_CHARACTERS,
    has_user_info,
    origin_of,
    url_key,
    wire_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta


Kind = Literal["feed", "llms"]

#: A URL with a port: what is before it, the port, and what is after it.
_PORT: Final = re.compile(
    r"(\s*https?:/*(?:\[[^\]]*\]|[^/\\?#:]+)):([^/\\?#]+)(.*)", re.IGNORECASE | re.DOTALL
)
_SCHEME: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")
#: Feed readers write `feed://host/path` for http, and `feed:` before a whole URL.
_FEED: Final = re.compile(r"\s*feed:(?:(//)|(?=https?://))", re.IGNORECASE)


class SourcesError(ValueError):
    """A URL or a sources file cannot be used; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Source:
    """One declared source."""

    url: str  #: as Scrapy will request it, without a fragment
    kind: Kind = "feed"
    name: str | None = None
    tags: tuple[str, ...] = ()  #: with the names of the folders
    every: timedelta | None = None  #: the minimum time between two visits; None: WALSH_MIN_REVISIT
    delay: timedelta | None = None  #: the minimum delay of its host; None: the delay of the host
    page: str | None = None  #: the page of the site (`htmlUrl` of an OPML file)
    folders: tuple[str, ...] = ()  #: the folders in the OPML file, the outermost first

    def revisit_interval(self, min_revisit: float) -> float:
        """Return the minimum time between two visits, in seconds.

        This is `every` or ``min_revisit`` (the setting `WALSH_MIN_REVISIT`), whichever is longer.
        """
        return max(min_revisit, self.every.total_seconds() if self.every else 0.0)


def delays_by_host(sources: Iterable[Source], host: Callable[[str], str]) -> dict[str, float]:
    """Return the longest delay that the sources of each host declare, in seconds.

    Hosts without a declared delay are left out. ``host`` returns the host of a URL, or its domain
    if `WALSH_PACE_BY` is "domain".
    """
    delays: dict[str, float] = {}
    for source in sources:
        if source.delay is not None:
            name = host(source.url)
            delays[name] = max(source.delay.total_seconds(), delays.get(name, 0.0))
    return delays


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts without repetitions, in their order."""
    return tuple(dict.fromkeys(texts))


def declared_urls(source: Source) -> tuple[str, ...]:
    """Return the URLs that a source declares: its own, and for "llms" the llms.txt of its host."""
    if source.kind == "llms":
        return source.url, urljoin(source.url, "/llms.txt")
    return (source.url,)


def declaration(sources: Iterable[Source]) -> bytes:
    """Return a document with one line for each source: its kind and its URL."""
    return "\n".join(f"{source.kind} {source.url}" for source in sources).encode()


def target_url(url: object) -> str:
    """Return a declared URL as Scrapy will request it, without its fragment.

    Raises SourcesError for a value that no crawl could request.
    """
    if not isinstance(url, str) or not url.strip():
        raise SourcesError("the URL is missing; write one that begins with https://")
    scheme = _SCHEME.match(url)
    if has_user_info(url):  # the message must not show the URL, which may have a password
        if scheme and scheme[1].lower() == "mailto":
            raise SourcesError(
                "this is a mail address; write a URL that begins with https:// or http://"
            )
        raise SourcesError("the URL has a user name or password, which is never sent; remove it")
    if scheme is None:
        raise SourcesError(f"{url[:80]!r} does not begin with https:// or http://")
    if scheme[1].lower() not in {"http", "https"}:
        web_url = _FEED.sub(lambda match: "http://" if match[1] else "", url)
        advice = "" if web_url == url else f"; write {web_url[:80]!r}"
        raise SourcesError(f"{url[:80]!r} is not an http or https URL{advice}")
    if not origin_of(url):
        port = _PORT.fullmatch(url)
        if port and origin_of(port[1] + port[3]):
            raise SourcesError(
                f"{url[:80]!r} has no valid port: {port[2][:40]!r} is no number up to 65535"
            )
        raise SourcesError(f"{url[:80]!r} has no valid host name; check the spelling")
    target = wire_url(url)
    if len(target) > MAX_DECLARED_CHARACTERS:
        raise SourcesError(f"{url[:80]!r}... is longer than {MAX_DECLARED_CHARACTERS} characters")
    return target


_PART: Final = "part "
#: The number of bits in the key of a URL.
_KEY_BITS: Final = 63
_MAX_CACHED_PARTS: Final = 64


class MissingPart(LookupError):
    """A part of the declaration of a run is no longer stored."""


def encode_part_names(names: Sequence[str]) -> bytes:
    """Return the document that lists the parts; their number must be a power of two."""
    return "\n".join(f"{_PART}{name}" for name in names).encode()


def part_names(body: bytes) -> list[str]:
    """Return the names of the parts; none if the document has the sources themselves."""
    lines = body.decode().splitlines() if body.startswith(_PART.encode()) else []
    return [line.removeprefix(_PART) for line in lines]


def part_number(key: int, parts: int) -> int:
    """Return the index of the part that has the source with this key."""
    return key * parts >> _KEY_BITS


class RunDeclaration:
    """The declaration of a run; ``read_part`` returns the bytes of a part, None if it is gone."""

    def __init__(self, body: bytes, read_part: Callable[[str], bytes | None]) -> None:
        self._read_part = read_part
        self._parts = part_names(body)
        self._sources = {} if self._parts else _parse_kinds(body)
        self._kinds_in = lru_cache(_MAX_CACHED_PARTS)(self._parse_part)

    def kind(self, url: str) -> str | None:
        """Return the kind of a source, or None if it was not declared. Raises MissingPart."""
        if self._parts:
            name = self._parts[part_number(url_key(url), len(self._parts))]
            return self._kinds_in(name).get(url)
        return self._sources.get(url)

    def _parse_part(self, name: str) -> Mapping[str, str]:
        body = self._read_part(name)
        if body is None:
            raise MissingPart(name)
        return _parse_kinds(body)


def _parse_kinds(body: bytes) -> dict[str, str]:
    lines = (line.partition(" ") for line in body.decode().splitlines())
    return {url: kind for kind, _, url in lines}


@dataclass(frozen=True, slots=True)
class TagDefaults:
    """The values of one table, and the place of the table in the file."""

    place: str  #: "line 3"
    every: timedelta | None
    delay: timedelta | None


class Defaults:
    """The defaults of all tags of a file. Of the tags of a source, the longest value counts."""

    def __init__(self) -> None:
        self._by_tag: dict[str, TagDefaults] = {}
        self._unused: set[str] = set()

    def add(self, tag: str, values: TagDefaults) -> None:
        """Add the table of a tag. Raises SourcesError if the tag has one already."""
        if tag in self._by_tag:
            raise SourcesError(f"the tag {tag[:40]!r} has two tables of defaults; keep one")
        self._by_tag[tag] = values
        self._unused.add(tag)

    def longest(self, tags: Sequence[str]) -> tuple[timedelta | None, timedelta | None]:
        """Return the longest `every` and the longest `delay` of these tags."""
        if not self._by_tag:
            return None, None
        self._unused.difference_update(tags)
        values = [self._by_tag[tag] for tag in tags if tag in self._by_tag]
        every = max((value.every for value in values if value.every), default=None)
        delay = max((value.delay for value in values if value.delay), default=None)
        return every, delay

    def warn(self, warnings: list[str]) -> None:
        """Append a warning about the tables whose tag no source has."""
        unused = [
            f"{values.place} ({tag[:40]!r})"
            for tag, values in self._by_tag.items()
            if tag in self._unused
        ]
        if unused:
            more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
            shown = ", ".join(unused[:3])
            warnings.append(f"defaults for a tag that no source has: {shown}{more}")
