"""Freshness lifetimes of the responses of a visit, the intermediate ones too (R8, decision 20).

An intermediate response is a redirect, or a page instead of which another document is requested.
Its lifetime delays the next visit as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.policy.freshness import Freshness
from walsh_scrapy.runtime.requestmeta import Lifetime

if TYPE_CHECKING:
    from scrapy.http import Response

    from walsh_scrapy.runtime.requestmeta import Visit


def freshness_of(response: Response) -> Freshness:
    """Return the headers of a response that say how long it is fresh."""

    def header(name: str) -> str | None:
        value = response.headers.get(name)
        return None if value is None else value.decode("latin-1")

    return Freshness(
        cache_control=b", ".join(response.headers.getlist("Cache-Control")).decode("latin-1"),
        expires=header("Expires"),
        date=header("Date"),
        age=header("Age"),
        retry_after=header("Retry-After"),
    )


def lifetime_of(response: Response, now: float) -> Lifetime:
    """Return until when a response is fresh; ``now`` is in epoch seconds."""
    return Lifetime(response.url, now + freshness_of(response).lifetime(now))


def fresh_until(visit: Visit, answer: Response | None, home: str, now: float) -> float:
    """Return until when the next visit has to wait for the lifetimes of this one, in epoch seconds.

    A lifetime is about its own URL. The next visit begins at ``home`` and does not ask for the hops
    before that, so these do not count.
    """
    lifetimes = list(visit.lifetimes)
    if answer is not None:
        lifetimes.append(lifetime_of(answer, now))
    urls = [each.url for each in lifetimes]
    start = urls.index(home) if home in urls else 0
    return max((each.until for each in lifetimes[start:]), default=now)
