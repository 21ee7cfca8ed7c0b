"""The rows of hosts in the ledger: each is read, and changed by compare-and-set (R4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from scrapy.utils.datatypes import LocalCache
from sqlalchemy import bindparam, case, func, or_, select

from walsh_scrapy.policy.hosttimes import HostTimes
from walsh_scrapy.policy.pacing import after
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.state.database import StateError, Store
from walsh_scrapy.state.hosts import (
    TIMES,
    HostSnapshot,
    LedgerRow,
    find_row,
    find_rows,
    write_row,
)
from walsh_scrapy.state.retention import OldRows
from walsh_scrapy.state.rows import upsert
from walsh_scrapy.state.tables import choices, hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from sqlalchemy import ColumnElement, Connection, Select

    from walsh_scrapy.policy.pacing import Event
    from walsh_scrapy.state.database import Database

#: How long the row of a host is kept after the last moment that it is about.
KEEP_SECONDS: Final = 90 * 86_400.0
_WAITS: Final = or_(
    *(hosts.c[name] > bindparam("now") for name in ("hold_until", "lease_until")),
    *(hosts.c.ended + hosts.c[name] > bindparam("now") for name in ("interval", "pause")),
)
_ROWS: Final = select(*(hosts.c[name] for name in TIMES), hosts.c.host)
_WAITING: Final = _ROWS.where(_WAITS)
_MARKED: Final = _ROWS.where(
    or_(_WAITS, *(hosts.c[name] > 0 for name in ("silences", "server_errors", "pause")))
)
_PAUSED: Final = select(hosts.c.host).where(hosts.c.pause > 0).order_by(hosts.c.host)
_UNIT: Final = select(choices.c.value).where(choices.c.name == "pace_by")
#: Rows kept in memory as they were last written: most of them change again within a second.
ROWS_IN_MEMORY = 10_000


class Change(NamedTuple):
    """What an event changed in a host's row."""

    before: HostTimes
    times: HostTimes
    at: float  #: epoch seconds of the event
    now: float


#: What is written with a change, in the same transaction.
Write: TypeAlias = "Callable[[Connection, Change], None]"


class HostRows(Store):
    """The rows of hosts. What is written or read is remembered: most of them soon change again.

    A change is a compare-and-set on the revision of the row, so only one of two processes that ask
    for a host at the same moment gets it, on any database. ``policy.pacing.after`` decides what
    changes. The clock is the database's, or ``clock``, which returns epoch seconds. It is read
    after the row: otherwise what another process wrote in between would lie in the future.
    """

    def __init__(self, database: Database, clock: Callable[[], float] | None = None) -> None:
        super().__init__(database)
        self._clock = clock
        self._rows: LocalCache[str, LedgerRow] = LocalCache(ROWS_IN_MEMORY)

    def intervals(self, above: float) -> dict[str, float]:
        """Return the spacing, in seconds, of each host where it is more than ``above``."""
        wide = select(hosts.c.host, hosts.c.interval, hosts.c.pause).where(
            or_(hosts.c.interval > above, hosts.c.pause > above)
        )
        rows = self._database.read(lambda connection: connection.execute(wide).all())
        return {host: max(interval, pause) for host, interval, pause in rows}

    def silent_hosts(self) -> frozenset[str]:
        """Return the hosts that were unreachable when they were asked last (decision 28)."""
        silent = select(hosts.c.host).where(hosts.c.silences > 0)
        return self._database.read(lambda connection: frozenset(connection.scalars(silent)))

    def waiting(self) -> dict[str, HostSnapshot]:
        """Return the hosts that may not be asked now: on hold, leased, or within their spacing."""
        found = self._found(_WAITING)
        return {host: snapshot for host, snapshot in found.items() if snapshot.wait > 0}

    def marked(self) -> dict[str, HostSnapshot]:
        """Return the hosts that wait, were not well when asked last, or have a pause."""
        found = self._found(_MARKED)
        return {
            host: snapshot
            for host, snapshot in found.items()
            if snapshot.wait > 0 or snapshot.times.is_marked
        }

    def find(self, host: str) -> HostSnapshot:
        """Return what is known of a host, now; a host that was never asked has empty times."""
        row = self._rows[host] = self._database.read(lambda connection: find_row(connection, host))
        now = self._now()
        return HostSnapshot(row.times.with_clock_at(now), now)

    def look_ahead(self, names: Collection[str]) -> None:
        """Read the rows of hosts that are leased soon; `take` notices if one has changed since."""
        unread = [name for name in names if name not in self._rows]
        found = self._database.read(lambda connection: find_rows(connection, unread))
        for host, row in found.items():
            self._rows[host] = row

    def pace_by(self, unit: str) -> None:
        """Pace by "host" or "domain" from now on.

        Raises StateError while hosts wait that were paced by another unit: crawls that differ in
        it do not see each other's leases.
        """
        if self._database.read(lambda connection: connection.scalar(_UNIT)) == unit:
            return

        def write(connection: Connection) -> None:
            found = connection.scalar(_UNIT)
            waiting = connection.execute(_WAITING, {"now": self._now()}).all()
            paused = connection.scalars(_PAUSED).all()
            if found not in (None, unit) and paused:
                raise StateError(
                    f"{self._database} is paced by {found}, and {paused[0]} has a pause of the "
                    f"operator's: a crawl with WALSH_PACE_BY = {unit!r} would not see that; end it "
                    f"with `scrapy hosts pause {paused[0]} 0`, or set WALSH_PACE_BY = {found!r}"
                )
            if found not in (None, unit) and waiting:
                last = max(HostTimes(*row[:-1]).ready_at(0.0) for row in waiting)
                raise StateError(
                    f"{self._database} is paced by {found}, and {len(waiting)} of its hosts wait, "
                    f"the last until {format_moment(last)}: a crawl with WALSH_PACE_BY = {unit!r} "
                    f"would not see that; wait, or set WALSH_PACE_BY = {found!r}"
                )
            upsert(connection, choices, {"name": "pace_by", "value": unit})

        self._database.write(write)

    def old_rows(self) -> OldRows:
        """Return the rows of hosts that nothing concerned in 90 days.

        All that such a row says is over by then: spacing, hold, lease, strikes and silences. A
        longer spacing or hold keeps its row until it ends, and an operator's pause for good. A
        known Crawl-delay is not kept longer: the next robots.txt of the host says it again.
        """
        before = self._now() - KEEP_SECONDS
        is_old = (_last_moment() < before) & (hosts.c.pause == 0.0)
        return OldRows(hosts, is_old, hosts.c.ended)

    def _found(self, statement: Select[Any]) -> dict[str, HostSnapshot]:
        now = self._now()
        rows = self._database.read(
            lambda connection: connection.execute(statement, {"now": now}).all()
        )
        return {row[-1]: HostSnapshot(HostTimes(*row[:-1]).with_clock_at(now), now) for row in rows}

    def _change(
        self, host: str, event: Event, also: Write | None = None, *, at: float | None = None
    ) -> Change:
        """Write what an event changes in a host's row, and with it what ``also`` writes.

        ``at`` is when the event was, in epoch seconds, if that is not now.
        """

        def write(connection: Connection) -> tuple[Change, LedgerRow]:
            change, row = self._written(connection, host, event, at)
            if also is not None:
                also(connection, change)
            return change, row

        change, self._rows[host] = self._database.write(write)
        return change

    def _written(
        self, connection: Connection, host: str, event: Event, at: float | None
    ) -> tuple[Change, LedgerRow]:
        """Write what an event changes, within a transaction; return the row as it is then."""
        remembered = self._rows.get(host)
        while True:
            row = remembered or find_row(connection, host)
            now = self._now()
            before, moment = row.times.with_clock_at(now), now if at is None else at
            wanted = after(before, event, moment)
            change = Change(before, wanted, moment, now)
            if wanted != row.times:
                if write_row(connection, host, wanted, row.revision):
                    revision = 0 if row.revision is None else row.revision + 1
                    return change, LedgerRow(wanted, revision)
            elif not remembered:
                return change, row
            # A row from memory may be out of date, so it cannot tell that nothing changes.
            remembered = None

    def _now(self) -> float:
        return self._clock() if self._clock else self._database.now()


def _last_moment() -> ColumnElement[float]:
    """Return the last moment that a row is about."""
    ended = func.coalesce(hosts.c.ended, 0.0)
    spaced = case((hosts.c.lease_until > ended, hosts.c.lease_until), else_=ended)
    last = spaced + hosts.c.interval
    for moment in (hosts.c.hold_until, hosts.c.silent_at, hosts.c.struck_at):
        last = case((moment > last, moment), else_=last)
    return last
