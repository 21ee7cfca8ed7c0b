"""When a source is due again, at which URL, and whether its feed is still the same (R8).

A source is due when the operator's interval, the freshness lifetime of the server's responses (RFC
9111) and the update hints of the feed have passed. `state.tables.Due` combines them in SQL. Moments
are epoch seconds, durations are seconds.

A permanent redirect moves a source to a new URL:

- The move is *settled* once two visits at least seven days apart saw the same redirect. From then
  on the new URL is requested. Redirects from there are observed in the same way (*onward*). It is
  settled at once if only its scheme becomes https, or if its host makes a run wait for too long
  between the two.
- The move is *doubted* once all visits to the new URL have failed for seven days. Visits then go to
  the declared and the new URL in turn, until one of them brings a document.
- The move is removed when a visit ends at the declared URL, and replaced when the declared URL
  redirects elsewhere. Failures alone never remove it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.backoff import MAX_WAIT_SECONDS, requested_wait
from walsh_scrapy.policy.durations import MAX_REVISIT_SECONDS, parse_http_date
from walsh_scrapy.policy.urls import MAX_DECLARED_CHARACTERS, registrable_domain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.feeds.metadata.entries import Feed

#: The due time of a source that is gone (410), until the operator resumes it.
NEVER: Final = math.inf

#: The statuses of permanent redirects (RFC 9110 15.4.2, 15.4.9).
PERMANENT: Final = frozenset({301, 308})
#: The minimum time between the two visits that settle a move, in seconds.
SETTLED_AFTER: Final = 7 * 86_400.0

_DIRECTIVE: Final = re.compile(r'([^\s,;="]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]*))?')
_SECONDS: Final = re.compile(r'"?([0-9]+)')
_DIGITS: Final = re.compile(r"\s*[0-9]+\s*", re.ASCII)
#: The values of `update_period`, in seconds.
PERIODS: Final = {
    "hourly": 3600.0,
    "daily": 86_400.0,
    "weekly": 7 * 86_400.0,
    "monthly": 30 * 86_400.0,
    "yearly": 365 * 86_400.0,
}
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class UpdateHints:
    """What a feed says about its updates."""

    interval: float = 0.0  #: seconds: the longer of `ttl` and `sy:updatePeriod`/`updateFrequency`
    skip_hours: frozenset[int] = frozenset()  #: 0 to 23, UTC
    skip_days: frozenset[str] = frozenset()  #: English names, UTC

    def opens(self, at: float) -> float:
        """Return the first moment from ``at`` on that is outside of all hours and days to skip.

        A feed that skips all hours or all days is ignored: ``at`` itself is returned.
        """
        if not self.skip_hours and not self.skip_days:
            return at
        hour = datetime.fromtimestamp(at, UTC).replace(minute=0, second=0, microsecond=0)
        for ahead in range(8 * 24):
            start = hour + timedelta(hours=ahead)
            if start.hour not in self.skip_hours and _DAYS[start.weekday()] not in self.skip_days:
                return max(at, start.timestamp())
        return at


def update_hints(feed: Feed) -> UpdateHints:
    """Return what a feed says about its updates: the longest of its intervals counts."""
    syndicated = 0.0
    if feed.update_period or feed.update_frequency:  # each has a default if the other is set
        period = PERIODS[feed.update_period or "daily"]
        syndicated = period / (feed.update_frequency or 1)
    expired = MAX_REVISIT_SECONDS if feed.expired else 0.0
    interval = max((feed.ttl or 0.0) * 60.0, syndicated, expired)
    return UpdateHints(interval, feed.skip_hours, feed.skip_days)


@dataclass(frozen=True, slots=True)
class Freshness:
    """The headers that set the freshness of a response, whatever its status."""

    cache_control: str | None = None
    expires: str | None = None
    date: str | None = None
    age: str | None = None
    retry_after: str | None = None  #: several headers are joined by line feeds

    def lifetime(self, now: float) -> float:
        """Return for how many seconds from ``now`` the server wants no further request.

        This is the freshness lifetime minus the age, or the Retry-After if it is longer (RFC 9111):

        - max-age is preferred to Expires (4.2.1); an Expires that is not a date is in the past
          (5.3); of several values of Age the first is used (5.1);
        - with no-cache or no-store max-age and Expires are ignored, because the server wants a
          request before each use (5.2.2.4, 5.2.2.5);
        - other malformed headers are ignored.
        """
        at = datetime.fromtimestamp(now, UTC)
        wait = requested_wait(self.retry_after or "", self.date, at)
        return max(self._fresh_for(at), wait or 0.0, 0.0)

    @property
    def is_unspecified(self) -> bool:
        """Whether the response has neither Cache-Control nor Expires.

        After a 304 the headers of the stored response then stay valid (RFC 9111 3.2, 4.3.4).
        """
        return not self.cache_control and self.expires is None

    def _fresh_for(self, now: datetime) -> float:
        age = (self.age or "").partition(",")[0]
        passed = _number(age) if _DIGITS.fullmatch(age) else 0.0
        directives = [
            (name.lower(), value) for name, value in _DIRECTIVE.findall(self.cache_control or "")
        ]
        # `no-cache="Set-Cookie"` is only about that header, so it does not count here.
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
    return min(float(digits), MAX_WAIT_SECONDS)


def not_before(
    ended: float,
    server_interval: float,
    hints: UpdateHints,
    operator_interval: float,
    failures: int = 0,
) -> float:
    """Return the moment before which server and feed want no visit, after one that ``ended``.

    It is the longer of the server's and the feed's interval after ``ended``, but at most 30 days,
    or the operator's interval if that is longer. If the source would be due in an hour or on a day
    that the feed skips, it is the end of that time. Each failure in a row after the first doubles
    the operator's interval, as in SQL (`state.tables.Due`).
    """
    operator_interval = min(operator_interval, MAX_WAIT_SECONDS)
    max_wait = max(MAX_REVISIT_SECONDS, operator_interval)
    wait = min(max(server_interval, hints.interval), max_wait)
    doubled = operator_interval * 2.0 ** min(max(failures - 1, 0), 40)
    due = ended + max(wait, min(doubled, max_wait))
    opens = min(hints.opens(due), ended + max_wait)
    return opens if opens > due else ended + wait


# ---- the URL of a source ----


@dataclass(frozen=True, slots=True)
class Move:
    """The new URL of a source, and whether it is requested there. Moments are epoch seconds."""

    to: str
    since: float  #: the first visit that was redirected there
    is_settled: bool  #: the source is requested at the new URL
    onward: Move | None = None  #: the move from there, which is not settled yet
    failing_since: float | None = None  #: the first failed visit since the last document from there

    @property
    def is_doubted(self) -> bool:
        """Whether visits to the new URL have failed for so long that the old one is tried too."""
        return self.failing_since is not None and not self.is_settled


def permanent_targets(urls: Sequence[str], statuses: Sequence[int]) -> tuple[str, ...]:
    """Return the targets of a visit's permanent redirects, up to its first temporary one.

    ``urls`` are all requested URLs in order; ``statuses`` are the statuses of the redirects between
    them. A target that is too long for a source's URL ends the chain as well.
    """
    targets: list[str] = []
    for target, status in zip(urls[1:], statuses, strict=True):
        if status not in PERMANENT or len(target) > MAX_DECLARED_CHARACTERS:
            break
        targets.append(target)
    return tuple(targets)


def are_permanent(statuses: Sequence[int]) -> bool:
    """Return True if a visit had no temporary redirect: a 410 at its end is about the source."""
    return PERMANENT.issuperset(statuses)


def move_after_document(
    previous: Move | None, declared: str, requested: str, targets: Sequence[str], now: float
) -> Move | None:
    """Return the move of a source after a visit that brought a document; None for no move.

    ``declared`` is the URL in the sources file, ``requested`` the URL of the visit's first request,
    and ``targets`` the result of `permanent_targets`. A document at a third URL, such as an
    llms.txt, says nothing about a move.

    A redirect from http to https that changes nothing else is settled at once.
    """
    current = previous if previous and requested == previous.to else None
    if current is None and requested != declared:
        return (
            replace(previous, failing_since=None) if previous and previous.is_settled else previous
        )
    if (targets[-1] if targets else requested) == declared:
        return None
    if targets and _is_https_upgrade(requested, targets[0]):
        current = Move(targets[0], now, is_settled=True)
        targets = targets[1:]
        if previous and previous.to == current.to:  # keep the onward move of an earlier visit
            current = replace(current, onward=previous.onward)
    if current is None:
        return _observe(previous, targets[-1], now)
    if not targets:
        return replace(current, onward=None, failing_since=None)
    onward = _observe(current.onward, targets[-1], now)
    return onward if onward.is_settled else replace(current, onward=onward, failing_since=None)


def move_after_intermediate(
    previous: Move | None, declared: str, requested: str, targets: Sequence[str], now: float
) -> Move | None:
    """Return the move of a source after a page that leads the visit on to another document.

    Like `move_after_document`, but ``failing_since`` stays, because the visit can still fail.
    """
    move = move_after_document(previous, declared, requested, targets, now)
    if previous is None or move is None or move.to != previous.to:
        return move
    return previous if previous.is_doubted else replace(move, failing_since=previous.failing_since)


def move_after_deferral(
    previous: Move | None, declared: str, requested: str, targets: Sequence[str], now: float
) -> Move | None:
    """Return the move of a source whose visit was redirected, and must wait for longer than a run.

    It is settled at once, so that the next visit begins there.
    """
    if not targets or requested not in (declared, previous.to if previous else declared):
        return previous
    return None if targets[-1] == declared else Move(targets[-1], now, is_settled=True)


def move_after_failure(
    previous: Move | None, declared: str, requested: str, now: float
) -> Move | None:
    """Return the move of a source after a visit that brought no document."""
    if previous is None:
        return None
    if previous.is_settled and requested == previous.to:
        since = now if previous.failing_since is None else previous.failing_since
        return replace(previous, failing_since=since, is_settled=now - since < SETTLED_AFTER)
    if previous.is_doubted and requested == declared:
        return replace(previous, is_settled=True)
    return previous


def _observe(previous: Move | None, target: str, now: float) -> Move:
    """Return a move to ``target``. It is settled if it was first seen at least 7 days ago."""
    since = previous.since if previous and previous.to == target else now
    return Move(target, since, is_settled=now - since >= SETTLED_AFTER)


def _is_https_upgrade(url: str, target: str) -> bool:
    return url.startswith("http:") and target == f"https{url.removeprefix('http')}"


# ---- another feed in the place of a feed ----


class FeedIdentity(NamedTuple):
    """What tells a feed from the feed of another site."""

    title: str | None
    host: str | None  #: of the page that it links to


def describe_replacement(known: FeedIdentity, feed: FeedIdentity) -> str:
    """Return why a feed is another one than the known one, as a clause; "" if it is the same.

    It is another one if both its title and the domain of its site have changed since it was read
    last: an address that was sold, or a server that sends the feed of another customer.
    """
    if not (known.title and known.host and feed.title and feed.host):
        return ""
    if feed.title == known.title or feed.host == known.host:
        return ""
    if registrable_domain(feed.host) == registrable_domain(known.host):
        return ""
    return f"its feed was {known.title!r} of {known.host}, and is {feed.title!r} of {feed.host}"
