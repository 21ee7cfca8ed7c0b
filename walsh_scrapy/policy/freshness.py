"""Until when server and feed ask for no visit of a source (R8, decision 20).

What counts is the freshness lifetime of the server's responses (RFC 9111), and the update hints of
the feed. When a source is due follows from this and from the operator's interval, in one expression
(`state.tables.Due`). Times are epoch seconds, durations seconds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from walsh_scrapy.policy.backoff import LONGEST_SECONDS, parse_retry_after
from walsh_scrapy.policy.durations import parse_http_date

#: Seconds after which a source is due at the latest, also after many failures and if a feed or a
#: server asks for more.
LONGEST_REVISIT: Final = 30 * 86_400.0
#: The due time of a source that is gone (410): only the operator can resume it.
NEVER: Final = math.inf

#: Seconds by which the clocks of several machines may differ. A time that is further in the future
#: was written by a clock that was wrong.
CLOCK_SKEW: Final = 3600.0

_DIRECTIVE: Final = re.compile(r'([^\s,;="]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]*))?')
_SECONDS: Final = re.compile(r'"?([0-9]+)')
_DIGITS: Final = re.compile(r"\s*[0-9]+\s*", re.ASCII)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class UpdateHints:
    """What a feed says about its updates; valid until the feed says something else."""

    interval: float = 0.0  #: seconds: the longer of `ttl` and `sy:updatePeriod`/`updateFrequency`
    skip_hours: frozenset[int] = frozenset()  #: 0 to 23, UTC
    skip_days: frozenset[str] = frozenset()  #: English names, UTC

    def opens(self, at: float) -> float:
        """Return the first epoch second, from ``at`` on, outside all hours and days to skip.

        If a feed skips all hours or all days, this cannot be kept, and ``at`` itself is returned.
        """
        if not self.skip_hours and not self.skip_days:
            return at
        hour = datetime.fromtimestamp(at, UTC).replace(minute=0, second=0, microsecond=0)
        for ahead in range(8 * 24):
            start = hour + timedelta(hours=ahead)
            if start.hour not in self.skip_hours and _DAYS[start.weekday()] not in self.skip_days:
                return max(at, start.timestamp())
        return at


@dataclass(frozen=True, slots=True)
class Freshness:
    """The headers of a response, with any status, that say how long it stays fresh."""

    cache_control: str | None = None
    expires: str | None = None
    date: str | None = None
    age: str | None = None
    retry_after: str | None = None  #: a line each if it came several times

    def lifetime(self, now: float) -> float:
        """Return for how many seconds from ``now`` the server asks for no further request.

        The freshness lifetime less the age: max-age goes before Expires (RFC 9111 4.2.1, 4.2.3).
        An Expires that is no date is in the past (5.3), of an Age with several members the first
        counts (5.1), and other malformed headers are ignored. Or Retry-After, if that is longer.

        With no-cache or no-store the server asks to be asked again before each use (5.2.2.4,
        5.2.2.5): then neither max-age nor Expires is a wish for fewer requests.
        """
        at = datetime.fromtimestamp(now, UTC)
        retry_after = parse_retry_after(self.retry_after, at) if self.retry_after else None
        return max(self._fresh_for(at), retry_after or 0.0, 0.0)

    @property
    def is_unspecified(self) -> bool:
        """Return True if there is neither Cache-Control nor Expires.

        In a 304 this means that those of the stored response stay valid (RFC 9111 3.2, 4.3.4).
        """
        return not self.cache_control and self.expires is None

    def _fresh_for(self, now: datetime) -> float:
        age = (self.age or "").partition(",")[0]
        passed = _number(age) if _DIGITS.fullmatch(age) else 0.0
        directives = [
            (name.lower(), value) for name, value in _DIRECTIVE.findall(self.cache_control or "")
        ]
        # `no-cache="Set-Cookie"` is about that header alone.
        if ("no-cache", "") in directives or any(name == "no-store" for name, _ in directives):
            return 0.0
        values = (_SECONDS.match(value) for name, value in directives if name == "max-age")
        max_ages = [_number(value[1]) for value in values if value]
        if max_ages:
            return max(max_ages) - passed
        expires = parse_http_date(self.expires, now) if self.expires else None
        if expires is None:
            return 0.0
        date = parse_http_date(self.date, now) if self.date else None
        return (expires - (date or now)).total_seconds() - passed


def _number(digits: str) -> float:
    return min(float(digits), LONGEST_SECONDS)


def asked_until(
    ended: float,
    server_interval: float,
    hints: UpdateHints,
    operator_interval: float,
    failures: int = 0,
) -> float:
    """Return until when no visit is asked for after one that ended, but for the operator's time.

    That is the longer of the server's interval and the feed's, at most 30 days, or the operator's
    interval if that is longer (up to 100 years). If the source would be due in an hour or on a day
    to skip, it is the end of these, within the same limit. Each failure in a row after the first
    doubles the operator's interval, as it does in SQL (`state.tables.Due`).
    """
    operator_interval = min(operator_interval, LONGEST_SECONDS)
    longest = max(LONGEST_REVISIT, operator_interval)
    asked = min(max(server_interval, hints.interval), longest)
    doubled = operator_interval * 2.0 ** min(max(failures - 1, 0), 40)
    due = ended + max(asked, min(doubled, longest))
    opens = min(hints.opens(due), ended + longest)
    return opens if opens > due else ended + asked
