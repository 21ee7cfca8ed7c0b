"""Backoff: the hold after 429, 503 and Retry-After (R5, decision 15).

Delays are seconds. Randomness and the present are arguments.
"""

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Context, Decimal
from enum import Enum, auto
from random import Random
from typing import Final

from walsh_scrapy.policy.durations import LIST_COMMA, parse_http_date

#: The statuses after which a request is made again (R5).
RETRIED_STATUSES: Final = frozenset({429, 503})
#: The answers of a server that has a problem (decision 28).
SERVER_ERRORS: Final = frozenset({500, 502, 504})
#: Longer times count as this one: 100 years, which can still be added to a date.
LONGEST_SECONDS: Final = 36_525 * 86_400.0

#: The cap is at least this many times the base where a delay must grow: by 2, and jitter by 1.5.
LEAST_CAP: Final = 3.0
_JITTER: Final = 0.5  # adds up to half of a delay; never shortens it: early retries are impolite
#: Shorter items are no dates, so a header of 60,000 items is read in milliseconds.
_MIN_DATE_CHARACTERS: Final = 20
#: A number that is so close to now, as seconds or milliseconds since 1970, is a moment.
_EPOCH_WINDOW: Final = 366 * 86_400.0
#: The difference between our clock and the Date of a response up to which both are used.
_DATE_WINDOW: Final = timedelta(days=1)
_NUMBER: Final = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[ \t]*(?P<unit>[a-z]*)\.?", re.IGNORECASE | re.ASCII
)
#: The seconds of each unit.
_UNITS: Final = {
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
}
_ROUND_UP: Final = Context(prec=28, rounding=ROUND_CEILING, traps=[])
#: Larger numbers count as this one, which is more than the milliseconds of any moment.
_MAX_NUMBER: Final = Decimal(10**15)


def parse_retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header, from `now` (RFC 9110 10.2.3).

    `now` is an aware datetime. Reads the three forms of HTTP-date (5.6.7), in any language
    environment, and numbers as servers write them: with a decimal fraction, a unit (seconds,
    minutes or hours) or quotes. A number without a unit that is within 366 days of `now`, as
    seconds or milliseconds since 1970, is that moment. The longest time of a list counts. A
    header that came several times has one line of `value` per header.

    Returns 0.0 for a moment in the past, and None for a value that cannot be read. Never raises;
    times beyond `LONGEST_SECONDS` become that.
    """
    times: list[float] = []
    for line in value.split("\n"):
        for item in set(LIST_COMMA.split(line)):  # a hostile one may be there 60,000 times
            seconds = _parse_item(item.strip(" \t\"'"), now)
            if seconds is not None:
                times.append(min(max(0.0, seconds), LONGEST_SECONDS))
    return max(times, default=None)


def _parse_item(text: str, now: datetime) -> float | None:
    """Return the seconds of one date or number; negative for a moment in the past."""
    date = parse_http_date(text, now) if len(text) >= _MIN_DATE_CHARACTERS else None
    if date is not None:
        return (date - now).total_seconds()
    found = _NUMBER.fullmatch(text)
    unit = _UNITS.get(found["unit"].lower()) if found else None
    if found is None or unit is None:
        return None
    exact = _ROUND_UP.multiply(Decimal(found["number"]), Decimal(unit))
    seconds = float(math.ceil(min(exact, _MAX_NUMBER)))
    if not found["unit"]:
        for moment in (seconds, seconds / 1000):
            ahead = moment - now.timestamp()
            if abs(ahead) <= _EPOCH_WINDOW:
                return ahead
    return seconds


def requested_wait(retry_after: str, date: str | None, now: datetime) -> float | None:
    """Return the seconds that a response asks for, by the slower of two clocks.

    These are ours and the response's: `date` is its Date header, which is used if it is within a
    day of `now`. Otherwise as `parse_retry_after`.
    """
    wait = parse_retry_after(retry_after, now)
    sent_at = parse_http_date(date, now) if date else None
    if wait is None or sent_at is None or abs(sent_at - now) > _DATE_WINDOW:
        return wait
    return max(wait, parse_retry_after(retry_after, sent_at) or 0.0)


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


class NextStep(Enum):
    """What follows a failed attempt to get a response."""

    RETRY = auto()
    STOP = auto()  #: the project has chosen fewer retries
    DEFER = auto()  #: other requests have used up the retries of the host
    GIVE_UP = auto()


def next_step(
    attempt: int,
    max_retries: int,
    chosen: int | None = None,
    *,
    refusals: int,
    refusals_of_rank: int,
    for_robots: bool,
) -> NextStep:
    """Return what follows the failure before retry `attempt`, which counts from 1 (R5).

    `chosen` is the number of retries that the project asks for, instead of `max_retries`.
    `refusals` of the host in a row, whatever their URLs, count against the larger of the two.
    `refusals_of_rank` are those of requests for the same purpose; if there are more of them than
    attempts of this request, the host refused other requests too.
    """
    retries = max_retries if chosen is None else chosen
    if refusals <= max(max_retries, retries):
        if attempt <= retries:
            return NextStep.RETRY
        if chosen is not None:
            return NextStep.STOP
    elif attempt <= retries and attempt < refusals_of_rank and not for_robots:
        return NextStep.DEFER
    return NextStep.GIVE_UP


def is_refusal(status: int, *, for_robots: bool) -> bool:
    """Return True for a status after which the request is retried: 429 and 503.

    For robots.txt that is every server error, and no answer at all (``status`` 0; decision 12).
    """
    return status in RETRIED_STATUSES or (for_robots and (status == 0 or status >= 500))


def max_retries_after_silence(max_retries: int, *, timed_out: bool, is_slow: bool) -> int:
    """Return how often a robots.txt that got no answer is requested again in the same run.

    ``max_retries`` is ``WALSH_MAX_RETRIES``. A host that timed out will probably do so again, and
    a serial crawl waits with it. A host that sends too slowly (``is_slow``) is deferred.
    """
    if is_slow:
        return 0
    return min(1, max_retries) if timed_out else max_retries


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

    def hold(self, status: int, retry_after: float | None, attempt: int) -> float:
        """Return the seconds of the hold after a response (R5, decision 15).

        After 429, any 5xx and no answer at all (``status`` 0) that is our backoff before retry
        ``attempt``, counted from 0; after other statuses it is 0. The seconds of a Retry-After
        replace it for every status, and are never capped. Our backoff stays if these are 0.
        """
        if retry_after:
            return retry_after
        is_ours = status in {0, 429} or status >= 500
        return backoff_delay(attempt, self.base, self.cap, self.random) if is_ours else 0.0
