"""Hosts as commands and starting crawls read them, and how commands change them.

Each change by hand is kept as an override, with its reason (decision 31). The operator may give a
host a longer delay, and may end its hold. The next `begin` reads both from the row of the host. A
source that is resumed, accepted or forgotten is recorded as an override too. Overrides are kept
permanently, so that the operator can answer for them.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from sqlalchemy import and_, func, insert, or_, select, update

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.programname import program_name
from walsh_scrapy.state.database import NOW, Store, clock_of
from walsh_scrapy.state.engine import StateError
from walsh_scrapy.state.ownership import (
    HOSTS_SQL,
    IS_HOST,
    LAST_END,
    HostSnapshot,
    find,
    insert_host,
    lock,
    number_param,
    snapshot_of,
)
from walsh_scrapy.state.records import upsert
from walsh_scrapy.state.retention import OldRows
from walsh_scrapy.state.tables import choices, hosts, overrides, workers

if TYPE_CHECKING:
    from sqlalchemy import Connection


OverrideName: TypeAlias = Literal["release", "delay", "resume", "accept", "forget"]


@dataclass(frozen=True, slots=True)
class Override:
    """One change by the operator."""

    made_at: float  #: epoch seconds
    host: str
    override: OverrideName
    seconds: float  #: the new delay, or the rest of the hold that was ended
    reason: str
    url: str | None = None  #: the source that was resumed, accepted or forgotten
    requests: int | None = None  #: the requests that were forgotten


_SET_DELAY_SQL: Final = (
    update(hosts)
    .where(IS_HOST, hosts.c.operator_delay != number_param("seconds"))
    .values(operator_delay=number_param("seconds"))
)
_RELEASE_SQL: Final = update(hosts).where(IS_HOST).values(hold_until=0.0, hold_by="", hold_status=0)


def set_operator_delay(connection: Connection, host: str, seconds: float, reason: str) -> float:
    """Give a host a delay of at least ``seconds`` permanently; 0 ends that.

    The override is recorded if it changes anything. Return the delay that the host has now.
    """
    params = {"key": host, "worker": "", "seconds": seconds, **clock_of(connection)}
    if seconds:
        connection.execute(insert_host(connection.dialect.name), params)
    is_changed = connection.execute(_SET_DELAY_SQL, params).rowcount == 1
    snapshot = find(connection, host)
    if is_changed:
        record_override(connection, Override(snapshot.now, host, "delay", seconds, reason))
    return snapshot.times.delay_with()


def release_hold(connection: Connection, host: str, reason: str) -> float:
    """End the hold of a host, and record that with the reason.

    Return the seconds that were left of the hold. If there was no hold that is 0, and nothing is
    recorded.
    """
    snapshot = lock(connection, host)
    if snapshot is None or not snapshot.hold:
        return 0.0
    connection.execute(_RELEASE_SQL, {"key": host})
    record_override(connection, Override(snapshot.now, host, "release", snapshot.hold, reason))
    return snapshot.hold


def record_override(connection: Connection, override: Override) -> None:
    """Record a change of the operator, within its transaction."""
    names = (field.name for field in fields(Override))
    connection.execute(insert(overrides), dict(zip(names, astuple(override), strict=True)))


#: Seconds for which the row of a host is kept after the last moment that it is about.
KEEP_SECONDS: Final = 90 * 86_400.0
_WAITS: Final = or_(
    hosts.c.hold_until > NOW,
    hosts.c.in_flight_until > NOW,
    LAST_END + hosts.c.delay > NOW,
    LAST_END + hosts.c.operator_delay > NOW,
)
_PACE_BY_SQL: Final = select(choices.c.value).where(choices.c.name == "pace_by")


def old_hosts(now: float) -> OldRows:
    """Return the rows that are about nothing in the last 90 days; ``now`` is in epoch seconds.

    Delay, hold and counts are over by then. An operator's delay and a living owner keep a row. A
    known Crawl-delay does not: the next robots.txt of the host has it again.
    """
    is_old = and_(
        func.coalesce(LAST_END + hosts.c.delay, 0.0) < now - KEEP_SECONDS,
        hosts.c.hold_until < now - KEEP_SECONDS,
        hosts.c.operator_delay == 0.0,
        hosts.c.owner.not_in(select(workers.c.id)),
    )
    return OldRows(hosts, is_old, hosts.c.request_ended_at)


class HostStore(Store):
    """Reads hosts and their owners, and writes what the operator changes about a host."""

    def find(self, host: str) -> HostSnapshot:
        """Return the row of a host, now; a host that was never requested has empty times."""
        return self._database.read(lambda connection: find(connection, host))

    def waiting(self) -> dict[str, HostSnapshot]:
        """Return the hosts that may not be requested now."""
        return self._database.read(_read_waiting)

    def delays(self, above: float) -> dict[str, float]:
        """Return the delay, in seconds, of each host where it is more than ``above``."""
        is_longer = or_(hosts.c.delay > above, hosts.c.operator_delay > above)
        delays = select(hosts.c.host, hosts.c.delay, hosts.c.operator_delay).where(is_longer)
        return {host: max(both) for host, *both in self._all(delays)}

    def unreachable(self) -> frozenset[str]:
        """Return the hosts that were unreachable when they were requested last."""
        unreachable = select(hosts.c.host).where(hosts.c.unreachable > 0)
        return frozenset(host for (host,) in self._all(unreachable))

    def release(self, host: str, reason: str) -> float:
        """End the hold of a host; see `release_hold`."""
        return self._database.write(lambda connection: release_hold(connection, host, reason))

    def set_delay(self, host: str, seconds: float, reason: str) -> float:
        """Give a host a longer delay; see `set_operator_delay`."""
        return self._database.write(
            lambda connection: set_operator_delay(connection, host, seconds, reason)
        )

    def set_pace_by(self, unit: str) -> None:
        """Make "host" or "domain" the unit of pacing from now on.

        Raises StateError while hosts wait that were paced by the other unit: crawls that differ in
        the unit do not see each other's requests.
        """
        if self._database.read(lambda connection: connection.scalar(_PACE_BY_SQL)) != unit:
            self._database.write(lambda connection: self._write_pace_by(connection, unit))

    def _write_pace_by(self, connection: Connection, unit: str) -> None:
        stored = connection.scalar(_PACE_BY_SQL)
        if stored not in (None, unit):
            slowed = select(hosts.c.host).where(hosts.c.operator_delay > 0).order_by(hosts.c.host)
            if delayed := connection.scalars(slowed).all():
                raise StateError(
                    f"{self._database} was used with WALSH_PACE_BY = {stored!r}, and the delay of "
                    f"{delayed[0]} was set by hand: a crawl with WALSH_PACE_BY = {unit!r} would "
                    f"ignore it; end it with `{program_name()} hosts delay {delayed[0]} 0`, or set "
                    f"WALSH_PACE_BY = {stored!r}"
                )
            if waiting := _read_waiting(connection):
                last = max(snapshot.times.ready_at() for snapshot in waiting.values())
                raise StateError(
                    f"{self._database} was used with WALSH_PACE_BY = {stored!r}, and "
                    f"{count_of(len(waiting), 'host')} must not be requested yet, the last one "
                    f"until {format_moment(last)}: a crawl with WALSH_PACE_BY = {unit!r} would "
                    f"ignore that; wait, or set WALSH_PACE_BY = {stored!r}"
                )
        upsert(connection, choices, {"name": "pace_by", "value": unit})


def _read_waiting(connection: Connection) -> dict[str, HostSnapshot]:
    """Return the hosts that wait. Times in the future are corrected here, but not in the rows."""
    waiting = {}
    for row in connection.execute(HOSTS_SQL.where(_WAITS), clock_of(connection)):
        times, now, _ = snapshot_of(row)
        snapshot = HostSnapshot(times.with_clock_at(now), now, times.ahead_of(now))
        if snapshot.wait > 0:
            waiting[row.host] = snapshot
    return waiting
