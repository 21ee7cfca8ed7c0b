"""Declared sources (R6)."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal
from urllib.parse import urljoin

from walsh_scrapy.policy.urls import MAX_DECLARED_CHARACTERS, has_user_info, origin_of, wire_url

Kind = Literal["feed", "llms"]

_SCHEME: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")
#: Feed readers write `feed://host/path` for http, and `feed:` before a whole URL.
_FEED: Final = re.compile(r"\s*feed:(?:(//)|(?=https?://))", re.IGNORECASE)


class SourcesError(ValueError):
    """A URL or sources file that cannot be used; the message is one line for operators."""


@dataclass(frozen=True, slots=True)
class Source:
    """One declared source.

    `url` is spelled as Scrapy will request it, without fragment. `every` is the operator's least
    time between two visits, None for `WALSH_MIN_REVISIT`. `delay` is the least time between two
    requests to its host, None for the delays of the host and `WALSH_MIN_INTERVAL`. `page` is the
    site it belongs to (`htmlUrl` of an OPML file), and `folders` are those of the file that it is
    in, the outermost first; they are among its tags.
    """

    url: str
    kind: Kind = "feed"
    name: str | None = None
    tags: tuple[str, ...] = ()
    every: timedelta | None = None
    delay: timedelta | None = None
    page: str | None = None
    folders: tuple[str, ...] = ()

    def revisit_interval(self, min_revisit: float) -> float:
        """Return the operator's least time between two visits, in seconds (R8).

        That is `every` or ``min_revisit``, the `WALSH_MIN_REVISIT` setting, whichever is longer.
        """
        return max(min_revisit, self.every.total_seconds() if self.every else 0.0)


def host_delays(sources: Iterable[Source], host: Callable[[str], str]) -> dict[str, float]:
    """Return the longest delay of each host's sources, in seconds, for hosts that have any.

    ``host`` returns the name that a URL is paced by (decision 5).
    """
    found: dict[str, float] = {}
    for source in sources:
        if source.delay is not None:
            name = host(source.url)
            found[name] = max(source.delay.total_seconds(), found.get(name, 0.0))
    return found


def with_delays(known: Mapping[str, float], delays: Mapping[str, float]) -> dict[str, float]:
    """Return the known delays of hosts, in seconds, with the delays that are longer."""
    return dict(known) | {host: max(each, known.get(host, 0.0)) for host, each in delays.items()}


def declared_urls(source: Source) -> tuple[str, ...]:
    """Return the URLs that a source declares: its page, and for "llms" its host's llms.txt."""
    if source.kind == "llms":
        return source.url, urljoin(source.url, "/llms.txt")
    return (source.url,)


def declaration(sources: Iterable[Source]) -> bytes:
    """Return the declaration of sources for the state: one line per source, its kind and URL."""
    return "\n".join(f"{source.kind} {source.url}" for source in sources).encode()


def target_url(url: object) -> str:
    """Return a declared URL as it will be requested: as Scrapy spells it, without fragment.

    Raises SourcesError for a value that no crawl could request.
    """
    if not isinstance(url, str) or not url.strip():
        raise SourcesError("it has no URL; give it one that begins with https://")
    scheme = _SCHEME.match(url)
    if has_user_info(url):  # the URL is not shown, because it may hold a password
        if scheme and scheme[1].lower() == "mailto":
            raise SourcesError("it is a mail address; only http and https are requested")
        raise SourcesError("its URL holds a user name or password, which is never sent; remove it")
    if scheme is None:
        raise SourcesError(f"{url[:80]!r} has no scheme; begin it with https:// or http://")
    if scheme[1].lower() not in {"http", "https"}:
        meant = _FEED.sub(lambda found: "http://" if found[1] else "", url)
        advice = "" if meant == url else f"; declare {meant[:80]!r}"
        raise SourcesError(f"{url[:80]!r} is not http or https; only those are requested{advice}")
    if not origin_of(url):
        raise SourcesError(f"{url[:80]!r} names no host that can be requested; check its spelling")
    target = wire_url(url)
    if len(target) > MAX_DECLARED_CHARACTERS:
        raise SourcesError(f"{url[:80]!r}... is longer than {MAX_DECLARED_CHARACTERS} characters")
    return target
