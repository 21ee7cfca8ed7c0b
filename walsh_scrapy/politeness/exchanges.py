"""A request and its response as pacing and backoff see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.runtime.marks import rank_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response


def exchange_of(
    request: Request, response: Response | None, latency: float, interval: float = 0.0
) -> Exchange:
    """Return the exchange of a request; ``response`` is None if there was no response.

    ``latency`` is how long it took, ``interval`` the spacing from its end on, both in seconds.
    """
    retry_after = response.headers.get("Retry-After") if response is not None else None
    return Exchange(
        interval=interval,
        latency=latency,
        status=response.status if response is not None else 0,
        retry_after=None if retry_after is None else retry_after.decode("latin-1"),
        for_robots=rank_of(request) is Rank.ROBOTS,
    )
