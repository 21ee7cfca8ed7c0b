"""When a source is due again (R8, decision 20). Times are epoch seconds, durations seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.backoff import LONGEST_SECONDS, parse_retry_after
from walsh_scrapy.policy.httpdates import parse_http_date

if TYPE_CHECKING:
    from walsh_scrapy.metadata.entries import Feed

#: A source is never forgotten: whatever was asked, and however often it failed, it is tried again.
LONGEST_REVISIT: Final = 30 * 86_400.0
#: When a source is due that is gone for good (410): when the operator says so.
NEVER: Final = math.inf

#: Seconds by which the clocks of several machines may differ. What was noted further ahead of now,
#: was noted by a clock that was wrong.
CLOCKS_DIFFER: Final = 3600.0

_MAX_AGE: Final = re.compile(r'(?:^|[\s,])max-age\s*=\s*"?([0-9]+)', re.IGNORECASE)
_DIGITS: Final = re.compile(r"\s*[0-9]+\s*", re.ASCII)
_PERIODS: Final = {
    "hourly": 3600.0,
    "daily": 86_400.0,
    "weekly": 7 * 86_400.0,
    "monthly": 30 * 86_400.0,
    "yearly": 365 * 86_400.0,
}
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a feed asks of whoever comes again; it holds until the feed says otherwise."""

    interval: float = 0.0  #: the longer of `ttl` and `sy:updatePeriod` by `sy:updateFrequency`
    skip_hours: frozenset[int] = frozenset()  #: 0 to 23, UTC
    skip_days: frozenset[str] = frozenset()  #: English names, UTC

    @classmethod
    def of(cls, feed: Feed) -> Wishes:
        """Read them from a feed document."""
        syndicated = 0.0
        if feed.update_period or feed.update_frequency:  # each has a default without the other
            period = _PERIODS[feed.update_period or "daily"]
            syndicated = period / (feed.update_frequency or 1)
        # A JSON feed that has expired says that it will never change again.
        ended = LONGEST_REVISIT if feed.expired else 0.0
        interval = max((feed.ttl or 0.0) * 60.0, syndicated, ended)
        return cls(interval, feed.skip_hours, feed.skip_days)

    def opens(self, at: float) -> float:
        """Return the first moment from ``at`` that is in no hour and on no day to skip.

        Whoever skips all of them asks for nothing that can be done: that is ``at`` itself.
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
    """The headers of a response, of whatever status, that say how long it will do."""

    cache_control: str | None = None
    expires: str | None = None
    date: str | None = None
    age: str | None = None
    retry_after: str | None = None

    def lifetime(self, now: float) -> float:
        """Return for how many seconds from ``now`` the server asks not to be asked again.

        max-age goes before Expires, and the time spent in caches counts (RFC 9111 4.2.1, 4.2.3);
        what cannot be read asks for nothing (5.3). A Retry-After holds if it is longer.
        """
        at = datetime.fromtimestamp(now, UTC)
        waits = parse_retry_after(self.retry_after, at) if self.retry_after else None
        return max(self._fresh_for(at), waits or 0.0, 0.0)

    @property
    def is_silent(self) -> bool:
        """Tell whether they say nothing of it; in a 304, what was said before then holds.

        A cache keeps the headers of its copy that a 304 does not replace (RFC 9111 3.2, 4.3.4).
        """
        return not (self.cache_control or self.expires)

    def _fresh_for(self, now: datetime) -> float:
        spent = _number(self.age) if self.age and _DIGITS.fullmatch(self.age) else 0.0
        ages = _MAX_AGE.findall(self.cache_control or "")
        if ages:
            return max(map(_number, ages)) - spent
        until = parse_http_date(self.expires, now) if self.expires else None
        if until is None:
            return 0.0
        since = parse_http_date(self.date, now) if self.date else None
        return (until - (since or now)).total_seconds() - spent


def _number(digits: str) -> float:
    return min(float(digits), LONGEST_SECONDS)


@dataclass(frozen=True, slots=True)
class LastVisit:
    """What a visit left for the next: its moment, and whatever was asked for besides."""

    at: float
    asked: float = 0.0  #: seconds that its answers asked for
    failures: int = 0  #: in a row
    wishes: Wishes = Wishes()
    is_gone: bool = False  #: 410
    is_resumed: bool = False  #: the operator said so


class Due(NamedTuple):
    """The moment from which a source may be asked for, and what decided it, in one word."""

    at: float  #: 0 for what waits for nobody, NEVER for what rests
    rule: str  #: new gone resumed skip failing feed server operator


def due(last: LastVisit | None, least: float, now: float) -> Due:
    """Say when a source is due that is looked at ``now``; None was never visited.

    A visit that lies ahead is as good as none, or a clock that was wrong once would let a source
    rest for years.

    The longest wins of what the operator chose (``least``), the answers asked for and the feed
    wishes, at most 30 days unless the operator chose more, and never more than can be reckoned
    with (100 years). Each failure in a row after the first doubles the operator's time. Hours and
    days to skip are waited out, whenever the run is, but not beyond that.
    """
    if last is not None and last.is_gone:
        return Due(NEVER, "gone")
    if last is None or last.at > now + CLOCKS_DIFFER:
        return Due(0.0, "new")
    pause, rule = _pause(last, least)
    latest = last.at + max(LONGEST_REVISIT, min(least, LONGEST_SECONDS))
    ripe = 0.0 if last.is_resumed else min(last.at + pause, latest)
    soonest = max(ripe, now)
    opens = min(last.wishes.opens(soonest), max(soonest, latest))
    return Due(opens, "skip") if opens > soonest else Due(ripe, rule)


def _pause(last: LastVisit, least: float) -> tuple[float, str]:
    """Return the seconds between two visits and who made them so many: of equals the first."""
    if last.is_resumed:
        return 0.0, "resumed"
    doublings = min(max(last.failures - 1, 0), 40)
    return max(
        (least * 2.0**doublings, "failing" if last.failures else "operator"),
        (last.wishes.interval, "feed"),
        (last.asked, "server"),
        key=itemgetter(0),
    )
