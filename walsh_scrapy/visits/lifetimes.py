"""What the answers that a visit only passes by ask of whoever comes again (R8, decision 20).

Redirects, and a page that is left for another document: their requests lead to the next one, and
what they asked for goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.freshness import Freshness
from walsh_scrapy.runtime import meta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.http import Response


class Passed(NamedTuple):
    """An address, and until when its answer asks not to be asked for again, in epoch seconds."""

    url: str
    until: float


def freshness_of(response: Response) -> Freshness:
    """Read the headers of a response that say how long it will do."""

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


def passed_by(request: Request) -> Sequence[Passed]:
    """Return the answers that led to a request, in their order."""
    found: Sequence[Passed] = request.meta.get(meta.PASSED, ())
    return found


def go_on(following: Request, request: Request, response: Response, now: float) -> None:
    """Note on the next request of a visit what the response that led to it asks for."""
    until = now + freshness_of(response).lifetime(now)
    following.meta[meta.PASSED] = (*passed_by(request), Passed(response.url, until))


def asked_until(request: Request, answer: Response | None, home: str, now: float) -> float:
    """Return until when the answers of a visit ask to be left alone, in epoch seconds.

    Each asks so for its own address; the hops before ``home``, where the next visit begins, are not
    asked again, whenever that is.
    """
    passed = list(passed_by(request))
    if answer is not None:
        passed.append(Passed(answer.url, now + freshness_of(answer).lifetime(now)))
    places = [each.url for each in passed]
    start = places.index(home) if home in places else 0
    return max((each.until for each in passed[start:]), default=now)
