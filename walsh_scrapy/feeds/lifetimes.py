"""Until when a response is fresh, and a source is not visited again (R8, decision 20)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.feeds.freshness import Freshness

if TYPE_CHECKING:
    from scrapy.http import Response

    from walsh_scrapy.feeds.sourcevisit import SourceVisit


class Lifetime(NamedTuple):
    """The freshness lifetime of one response: its URL, and its end in epoch seconds."""

    url: str
    until: float


def freshness_of(response: Response) -> Freshness:
    """Return the headers of a response that set its freshness."""

    def lines(name: str) -> list[str]:
        return [line.decode("latin-1") for line in response.headers.getlist(name)]

    def first(name: str) -> str | None:
        return next(iter(lines(name)), None)

    return Freshness(
        cache_control=", ".join(lines("Cache-Control")),
        expires=first("Expires"),
        date=first("Date"),
        age=first("Age"),
        retry_after="\n".join(lines("Retry-After")),
    )


def lifetime_of(response: Response, now: float) -> Lifetime:
    """Return until when a response is fresh; ``now`` is in epoch seconds."""
    return Lifetime(response.url, now + freshness_of(response).lifetime(now))


def fresh_until(visit: SourceVisit, home: str, now: float) -> float:
    """Return when the last response of a visit expires, in epoch seconds.

    Redirects count too, and so do pages that led to another document. The next visit begins at the
    URL ``home``. It skips the redirects before that, so their lifetimes do not count.
    """
    urls = [lifetime.url for lifetime in visit.lifetimes]
    start = urls.index(home) if home in urls else 0
    return max((lifetime.until for lifetime in visit.lifetimes[start:]), default=now)
