"""A source that the operator declares: a feed, or a page with markdown or an llms.txt."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal
from urllib.parse import urljoin

from walsh_scrapy.policy.urls import MAX_DECLARED_CHARACTERS, has_user_info, origin_of, wire_url

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
