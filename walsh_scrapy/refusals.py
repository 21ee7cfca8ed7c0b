"""What a server's "not now" does to its host: the hold that a release lays on it (R5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from walsh_scrapy import meta
from walsh_scrapy.policy.backoff import RETRIED_STATUSES, hold_for
from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl import Crawl
    from walsh_scrapy.policy.pacing import HostTimes
    from walsh_scrapy.state.hosts import Decision


def is_refusal(request: Request, status: int) -> bool:
    """Tell whether an answer is asked for again: 429 and 503; for robots.txt every failure.

    ``status`` is 0 where no answer came (ruling 12).
    """
    is_robots = meta.rank(request) is Rank.ROBOTS
    return status in RETRIED_STATUSES or (is_robots and (status == 0 or status >= 500))


def hold_after(
    crawl: Crawl, request: Request, status: int, retry_after: bytes | None = None
) -> Decision | None:
    """Return what the end of an exchange does to its host's line, None if nothing more.

    Whatever the error, a Retry-After holds for the whole host; only refusals count as strikes.
    """
    refused = is_refusal(request, status)
    if not refused and not (status >= 400 and retry_after is not None):
        return None

    def held(times: HostTimes, now: float) -> HostTimes:
        strikes = refused or status >= 500
        struck = times.struck(now, request.meta.get(meta.SENT_AT, now)) if strikes else times
        seconds = hold_for(
            status,
            None if retry_after is None else retry_after.decode("latin-1"),
            datetime.fromtimestamp(now, UTC),
            struck.strikes - 1,
            crawl.options.backoff_base,
            crawl.options.backoff_max,
            crawl.random,
        )
        return struck.held(now, seconds)

    return held
