"""When a source is visited again, and where (R8; decisions 20 and 21).

Server and feed defer a visit: by the freshness lifetime of the server's responses (RFC 9111), and
by the update hints of the feed. `state.tables.Due` computes the due time of a source from this and
from the operator's interval. Times are epoch seconds, durations seconds.

Where a source moved: a move is settled once two visits at least seven days apart saw the same
permanent redirect. From then on the source is requested at its new address. A redirect from there
is observed in the same way: it is the onward move. If all visits to the new address fail for seven
days, the move is doubted: visits then go to the declared address and to the new one alternately,
until one brings a document. Failures never remove a move. It is removed when a visit ends at the
declared address, and replaced when the declared address redirects elsewhere.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.backoff import LONGEST_SECONDS, requested_wait
from walsh_scrapy.policy.durations import parse_http_date
from walsh_scrapy.policy.urls import LONGEST_DECLARED

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds after which a source is due at the latest, even after many failures, and even if a feed
#: or a server wants more.
LONGEST_REVISIT: Final = 30 * 86_400.0
#: The due time of a source that is gone (410): only the operator can resume it.
NEVER: Final = math.inf

#: Seconds that the clocks of several machines may differ by. A time that is further in the future
#: was written by a clock that was wrong.
CLOCK_SKEW: Final = 3600.0
#: The statuses of permanent redirects (RFC 9110 15.4.2, 15.4.9).
PERMANENT: Final = frozenset({301, 308})
#: Seconds between the two visits that must see the same redirect before a move is settled.
SETTLED_AFTER: Final = 7 * 86_400.0

_DIRECTIVE: Final = re.compile(r'([^\s,;="]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]*))?')
_SECONDS: Final = re.compile(r'"?([0-9]+)')
_DIGITS: Final = re.compile(r"\s*[0-9]+\s*", re.ASCII)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class UpdateHints:
    """The hints of a feed about its updates, until it has other ones."""

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
    """The headers of a response, with any status, that set its freshness."""

    cache_control: str | None = None
    expires: str | None = None
    date: str | None = None
    age: str | None = None
    retry_after: str | None = None  #: one line per header if it came several times

    def lifetime(self, now: float) -> float:
        """Return the seconds from ``now`` for which the server wants no further request.

        The freshness lifetime less the age: max-age goes before Expires (RFC 9111 4.2.1, 4.2.3). An
        Expires that is not a date is in the past (5.3). The first of several members of an Age
        counts (5.1). Other malformed headers are ignored. Or Retry-After, if that is longer.

        With no-cache or no-store the server wants a request before each use (5.2.2.4, 5.2.2.5):
        then neither max-age nor Expires is a wish for fewer requests.
        """
        at = datetime.fromtimestamp(now, UTC)
        wait = requested_wait(self.retry_after or "", self.date, at)
        return max(self._fresh_for(at), wait or 0.0, 0.0)

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


def not_before(
    ended: float,
    server_interval: float,
    hints: UpdateHints,
    operator_interval: float,
    failures: int = 0,
) -> float:
    """Return the moment before which server and feed want no visit after one that ended.

    That is the longer of the server's interval and the feed's. It is at most 30 days, or the
    operator's interval if that is longer (up to 100 years). If the source would be due in an hour
    or on a day to skip, it is the end of these, within the same limit. Each failure in a row after
    the first doubles the operator's interval, as it does in SQL (`state.tables.Due`).
    """
    operator_interval = min(operator_interval, LONGEST_SECONDS)
    longest = max(LONGEST_REVISIT, operator_interval)
    wait = min(max(server_interval, hints.interval), longest)
    doubled = operator_interval * 2.0 ** min(max(failures - 1, 0), 40)
    due = ended + max(wait, min(doubled, longest))
    opens = min(hints.opens(due), ended + longest)
    return opens if opens > due else ended + wait


# ---- where a source is ----


@dataclass(frozen=True, slots=True)
class Move:
    """The new address of a source, and whether it is requested there. Times are epoch seconds."""

    to: str
    since: float  #: the first visit that was redirected there
    is_settled: bool  #: the source is requested at the new address
    onward: Move | None = None  #: the move from there, which is not settled yet
    failing_since: float | None = None  #: the first of the latest visits, all of which failed there

    @property
    def is_doubted(self) -> bool:
        """Return True if it was settled, and is no longer because visits failed too long."""
        return self.failing_since is not None and not self.is_settled


def permanent_targets(urls: Sequence[str], statuses: Sequence[int]) -> tuple[str, ...]:
    """Return the targets of a visit's permanent redirects, up to its first temporary one.

    ``urls`` are the requested URLs, from the first to the last; ``statuses`` are those of the
    redirects, one fewer. A target that is too long to be declared ends the chain as well.
    """
    found: list[str] = []
    for target, status in zip(urls[1:], statuses, strict=True):
        if status not in PERMANENT or len(target) > LONGEST_DECLARED:
            break
        found.append(target)
    return tuple(found)


def are_permanent(statuses: Sequence[int]) -> bool:
    """Return True if no redirect of a visit is temporary: a 410 at its end is for the source."""
    return PERMANENT.issuperset(statuses)


def move_after_document(
    known: Move | None, declared: str, requested: str, targets: Sequence[str], now: float
) -> Move | None:
    """Return a source's move after a visit that ended at its document, or None if it has none.

    ``requested`` is the URL of the visit's first request, ``targets`` the result of
    `permanent_targets` for it. If ``requested`` is neither the declared nor the new address, the
    document is an additional one, without meaning for a move.

    A redirect from http to https that changes nothing else is settled at once.
    """
    here = known if known and requested == known.to else None
    if here is None and requested != declared:
        return replace(known, failing_since=None) if known and known.is_settled else known
    if (targets[-1] if targets else requested) == declared:
        return None
    if targets and _is_https_upgrade(requested, targets[0]):
        here, targets = Move(targets[0], now, is_settled=True), targets[1:]
        if known and known.to == here.to:  # an earlier visit may have seen the onward move
            here = replace(here, onward=known.onward)
    if here is None:
        return _observation(known, targets[-1], now)
    if not targets:
        return replace(here, onward=None, failing_since=None)
    onward = _observation(here.onward, targets[-1], now)
    return onward if onward.is_settled else replace(here, onward=onward, failing_since=None)


def move_after_intermediate(
    known: Move | None, declared: str, requested: str, targets: Sequence[str], now: float
) -> Move | None:
    """Return a source's move after an intermediate page, which led the visit to its document.

    As `move_after_document`, but failures count on: the visit can still fail.
    """
    move = move_after_document(known, declared, requested, targets, now)
    if known is None or move is None or move.to != known.to:
        return move
    return known if known.is_doubted else replace(move, failing_since=known.failing_since)


def move_after_failure(
    known: Move | None, declared: str, requested: str, now: float
) -> Move | None:
    """Return a source's move after a visit that brought no document."""
    if known is None:
        return None
    if known.is_settled and requested == known.to:
        since = now if known.failing_since is None else known.failing_since
        return replace(known, failing_since=since, is_settled=now - since < SETTLED_AFTER)
    if known.is_doubted and requested == declared:
        return replace(known, is_settled=True)
    return known


def _observation(known: Move | None, target: str, now: float) -> Move:
    """Return a move to ``target``, which is settled if it was first seen long enough ago."""
    since = known.since if known and known.to == target else now
    return Move(target, since, is_settled=now - since >= SETTLED_AFTER)


def _is_https_upgrade(url: str, target: str) -> bool:
    return url.startswith("http:") and target == f"https{url.removeprefix('http')}"
