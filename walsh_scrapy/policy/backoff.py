"""Backoff: the hold after 429, 503 and Retry-After (R5, decision 15).

Delays are seconds. Randomness and the present are arguments.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final

from walsh_scrapy.policy.durations import parse_http_date

#: The statuses after which a request is made again (R5).
RETRIED_STATUSES: Final = frozenset({429, 503})
#: The answers of a server that has a problem (decision 28).
SERVER_ERRORS: Final = frozenset({500, 502, 504})
#: Longer times count as this one: 100 years, which can still be added to a date.
LONGEST_SECONDS: Final = 36_525 * 86_400.0

#: The cap is at least this many times the base where a delay must grow: by 2, and jitter by 1.5.
LEAST_CAP: Final = 3.0
_JITTER: Final = 0.5  # adds up to half of a delay; never shortens it: early retries are impolite
_SECONDS: Final = re.compile(r"[0-9]+")


def parse_retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header, from `now` (RFC 9110 10.2.3).

    `now` is an aware datetime. Takes ASCII digits and all three forms of HTTP-date (5.6.7), in
    any language environment. A date in the past gives 0.0, any other value None.
    Never raises; numbers beyond `LONGEST_SECONDS` become that.

    A header that came several times has one line of `value` per header. The longest time counts.
    """
    found = (_retry_after(line.strip(" \t"), now) for line in value.split("\n"))
    return max((seconds for seconds in found if seconds is not None), default=None)


def _retry_after(text: str, now: datetime) -> float | None:
    if _SECONDS.fullmatch(text):
        return min(float(text), LONGEST_SECONDS)
    when = parse_http_date(text, now)
    if when is None:
        return None
    return min(max(0.0, (when - now).total_seconds()), LONGEST_SECONDS)


def backoff_delay(attempt: int, base: float, cap: float, random: Random) -> float:
    """Return our delay in seconds before retry `attempt`, which counts from 0 (R5).

    `base` x 2^attempt, then up to half as much again by chance, at most `cap`. The delay before
    chance is at most two thirds of the cap, so that chance counts there too. A cap below
    `LEAST_CAP` times the base leaves less chance: none if both are the same.
    """
    doublings = min(max(attempt, 0), 1000)  # 2.0 ** 1024 would not be a number any more
    longest = max(base, cap / (1 + _JITTER))
    delay: float = min(longest, base * 2.0**doublings)
    return min(cap, delay * (1 + _JITTER * random.random()))


def is_refusal(status: int, *, for_robots: bool) -> bool:
    """Return True for a status after which the request is retried: 429 and 503.

    For robots.txt that is every server error, and no answer at all (``status`` 0; decision 12).
    """
    return status in RETRIED_STATUSES or (for_robots and (status == 0 or status >= 500))


def is_redirect(status: int) -> bool:
    """Return True for a redirect: its target has not answered yet."""
    return 300 <= status < 400 and status != 304


def is_good(status: int) -> bool:
    """Return True for an answer that shows no problem of its server, a 404 for example."""
    return 200 <= status < 500 and status != 429 and not is_redirect(status)


@dataclass(frozen=True, slots=True)
class Backoff:
    """The hold of a host after a refusal.

    ``base`` and ``cap`` are ``WALSH_BACKOFF_BASE`` and ``WALSH_BACKOFF_MAX``, in seconds.
    """

    base: float
    cap: float
    random: Random

    def hold(self, status: int, retry_after: str | None, now: datetime, attempt: int) -> float:
        """Return the seconds of the hold after a response (R5, decision 15).

        After 429, any 5xx and no answer at all (``status`` 0) that is our backoff before retry
        ``attempt``, counted from 0; after other statuses it is 0. Retry-After replaces it for every
        status, and is never capped. Our backoff stays if Retry-After is 0, a past date, or cannot
        be read. ``now`` is an aware datetime.
        """
        requested = None if retry_after is None else parse_retry_after(retry_after, now)
        if requested:
            return requested
        is_ours = status in {0, 429} or status >= 500
        return backoff_delay(attempt, self.base, self.cap, self.random) if is_ours else 0.0
