"""Backoff: for how long a host is on hold after a 429, a 503 or a Retry-After (R5).

Durations are seconds. The current time and the random generator are arguments.
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

#: The statuses after which a request is retried (R5).
RETRIED_STATUSES: Final = frozenset({429, 503})
#: The statuses of a server that has a problem. Each one in a row doubles the delay of its host.
SERVER_ERRORS: Final = frozenset({500, 502, 504})
#: Longer waits are cut to this one: 100 years, which can still be added to a date.
MAX_WAIT_SECONDS: Final = 36_525 * 86_400.0

#: The minimum of cap / base that leaves room for one doubling (2) and for jitter (1.5).
MIN_CAP_FACTOR: Final = 3.0
_JITTER: Final = 0.5  # adds up to half of a delay; never shortens it: early retries are impolite
#: Shorter items of a list are not tried as dates, so a header of 60,000 items takes milliseconds.
_MIN_DATE_CHARACTERS: Final = 20
#: A number that is this close to now, as seconds or milliseconds since 1970, is taken as a moment.
_EPOCH_WINDOW_SECONDS: Final = 366 * 86_400.0
#: The maximum difference between this machine's clock and a response's Date that is trusted.
_MAX_DATE_DIFFERENCE: Final = timedelta(days=1)
_NUMBER: Final = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[ \t]*(?P<unit>[a-z]*)\.?", re.IGNORECASE | re.ASCII
)
#: The seconds of each unit that servers write.
_UNITS: Final = {
    unit: seconds
    for units, seconds in (
        (("", "s", "sec", "secs", "second", "seconds"), 1),
        (("m", "min", "mins", "minute", "minutes"), 60),
        (("h", "hr", "hrs", "hour", "hours"), 3600),
    )
    for unit in units
}
_ROUND_UP: Final = Context(prec=28, rounding=ROUND_CEILING, traps=[])
#: Larger numbers are cut to this one, which is more than the milliseconds of any moment.
_MAX_NUMBER: Final = Decimal(10**15)


def parse_retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header asks to wait (RFC 9110 10.2.3).

    `now` is an aware datetime. `value` may be

    - an HTTP-date in any of its three forms (5.6.7);
    - a number as servers write it: with a fraction, a unit (seconds, minutes, hours) or quotes;
    - a number of seconds or milliseconds since 1970, if that is within 366 days of `now`;
    - a list of these, of which the longest wait counts. Several headers are joined by line feeds.

    Returns 0.0 for a moment in the past, None for a value that cannot be read, and at most
    `MAX_WAIT_SECONDS`. Never raises.
    """
    times: list[float] = []
    for line in value.split("\n"):
        for item in set(LIST_COMMA.split(line)):  # a hostile list may repeat one 60,000 times
            seconds = _parse_item(item.strip(" \t\"'"), now)
            if seconds is not None:
                times.append(min(max(0.0, seconds), MAX_WAIT_SECONDS))
    return max(times, default=None)


def _parse_item(text: str, now: datetime) -> float | None:
    """Return the seconds of one date or number; negative for a moment in the past."""
    date = parse_http_date(text, now) if len(text) >= _MIN_DATE_CHARACTERS else None
    if date is not None:
        return (date - now).total_seconds()
    match = _NUMBER.fullmatch(text)
    unit = _UNITS.get(match["unit"].lower()) if match else None
    if match is None or unit is None:
        return None
    exact = _ROUND_UP.multiply(Decimal(match["number"]), Decimal(unit))
    seconds = float(math.ceil(min(exact, _MAX_NUMBER)))
    if not match["unit"]:
        for moment in (seconds, seconds / 1000):
            ahead = moment - now.timestamp()
            if abs(ahead) <= _EPOCH_WINDOW_SECONDS:
                return ahead
    return seconds


def requested_wait(retry_after: str, date: str | None, now: datetime) -> float | None:
    """Return the seconds that a response asks to wait, by this machine's clock or the server's.

    `date` is the response's Date header. If it is within a day of `now`, the longer wait of the
    two clocks is returned, so that a wrong clock shortens no wait. See `parse_retry_after`.
    """
    wait = parse_retry_after(retry_after, now)
    sent_at = parse_http_date(date, now) if date else None
    if wait is None or sent_at is None or abs(sent_at - now) > _MAX_DATE_DIFFERENCE:
        return wait
    return max(wait, parse_retry_after(retry_after, sent_at) or 0.0)


def backoff_delay(attempt: int, base: float, cap: float, random: Random) -> float:
    """Return the delay in seconds before retry `attempt`, which counts from 0 (R5).

    The delay is `base` x 2^attempt plus jitter, and at most `cap`. Jitter is random, and up to half
    of the delay. The delay without jitter is at most two thirds of the cap, so that delays at the
    cap differ too. A cap below `MIN_CAP_FACTOR` times the base leaves less room for jitter.
    """
    doublings = min(max(attempt, 0), 1000)  # 2.0 ** 1024 raises OverflowError
    max_delay = max(base, cap / (1 + _JITTER))
    delay: float = min(max_delay, base * 2.0**doublings)
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
    """Return True for 429 and 503, after which a request is retried.

    A request for robots.txt is retried after every server error, and after no response (``status``
    0), because without the file nothing may be requested.
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
    """Return True for a redirect. It says nothing about the health of its target."""
    return 300 <= status < 400 and status != 304


def is_good(status: int) -> bool:
    """Return True for a status of a server without a problem, such as 404."""
    return 200 <= status < 500 and status != 429 and not is_redirect(status)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Computes the hold of a host after a refusal."""

    base: float  #: ``WALSH_BACKOFF_BASE``, in seconds
    cap: float  #: ``WALSH_BACKOFF_MAX``, in seconds
    random: Random
    max_slowed: float = math.inf  #: seconds to which server errors double a delay, if below the cap

    @property
    def max_delay(self) -> float:
        """The maximum delay, in seconds, to which server errors double that of a host."""
        return min(self.cap, self.max_slowed)

    def hold(self, status: int, retry_after: float | None, attempt: int) -> float:
        """Return the seconds of the hold after a response (R5).

        A Retry-After above 0 decides, whatever the status, and is never capped. Else the hold is
        `backoff_delay` before retry ``attempt`` (from 0) after a 429, any 5xx, and no response
        (``status`` 0). After other statuses there is no hold.
        """
        if retry_after:
            return retry_after
        has_backoff = status in {0, 429} or status >= 500
        return backoff_delay(attempt, self.base, self.cap, self.random) if has_backoff else 0.0
