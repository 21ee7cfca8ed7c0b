"""Backing off when a server says so, and for as long as it says (R5, decision 15).

Delays are seconds. Randomness and the present come in as arguments.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Final

from walsh_scrapy.policy.httpdates import parse_http_date
from walsh_scrapy.policy.pacing import HostTimes

#: The statuses after which a request is made again (R5).
RETRIED_STATUSES: Final = frozenset({429, 503})
#: The longest Retry-After there is: a number that dates can still be reckoned with (100 years).
LONGEST_SECONDS: Final = 36_525 * 86_400.0

_JITTER: Final = 0.5  # at most half as much again, and never less: an early retry is a rude one
_SECONDS: Final = re.compile(r"[0-9]+")


def parse_retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header asks for, from `now` (RFC 9110 10.2.3).

    `now` is an aware datetime. Takes ASCII digits and all three forms of HTTP-date (5.6.7), in
    any language environment. A date in the past asks for 0.0; None is for what says nothing.
    Never raises; numbers beyond `LONGEST_SECONDS` become that.
    """
    text = value.strip(" \t")
    if _SECONDS.fullmatch(text):
        return min(float(text), LONGEST_SECONDS)
    when = parse_http_date(text, now)
    if when is None:
        return None
    return min(max(0.0, (when - now).total_seconds()), LONGEST_SECONDS)


def backoff_delay(attempt: int, base: float, cap: float, random: Random) -> float:
    """Return our own delay in seconds before retry `attempt`, which counts from 0 (R5).

    `base` x 2^attempt, then up to half as much again by chance, at most `cap`.
    """
    doublings = min(max(attempt, 0), 1000)  # 2.0 ** 1024 would not be a number any more
    delay: float = min(cap, base * 2.0**doublings)
    return min(cap, delay * (1 + _JITTER * random.random()))


def hold_for(
    status: int,
    retry_after: str | None,
    now: datetime,
    attempt: int,
    base: float,
    cap: float,
    random: Random,
) -> float:
    """Return for how many seconds a host is left alone after a response (R5, decision 15).

    After 429, any 5xx and no answer at all (`status` 0) that is our own backoff; after other
    statuses it is nothing. Retry-After replaces it whatever the status, and is never capped
    downward. One that asks for no time (`0`, a past date) or says nothing leaves ours as it is.
    """
    asked = None if retry_after is None else parse_retry_after(retry_after, now)
    if asked:
        return asked
    ours = status in {0, 429} or status >= 500
    return backoff_delay(attempt, base, cap, random) if ours else 0.0


def is_refusal(status: int, *, for_robots: bool = False) -> bool:
    """Tell whether an answer is asked for again: 429 and 503; for robots.txt every failure.

    ``status`` is 0 where no answer came (decision 12).
    """
    return status in RETRIED_STATUSES or (for_robots and (status == 0 or status >= 500))


@dataclass(frozen=True, slots=True)
class Backoff:
    """What an answer does to its host's line, by ``WALSH_BACKOFF_BASE`` and ``_MAX`` (seconds)."""

    base: float
    cap: float
    random: Random

    def after(
        self,
        times: HostTimes,
        now: float,
        sent_at: float,
        status: int,
        retry_after: str | None = None,
        *,
        for_robots: bool = False,
    ) -> HostTimes:
        """Return a host's line after an answer that ended at ``now``, both in epoch seconds.

        Whatever the error, a Retry-After holds for the whole host; only refusals and server
        errors count as strikes.
        """
        refused = is_refusal(status, for_robots=for_robots)
        if not refused and not (status >= 400 and retry_after is not None):
            return times
        struck = times.struck(now, sent_at) if refused or status >= 500 else times
        at = datetime.fromtimestamp(now, UTC)
        seconds = hold_for(
            status, retry_after, at, struck.strikes - 1, self.base, self.cap, self.random
        )
        return struck.held(now, seconds)
