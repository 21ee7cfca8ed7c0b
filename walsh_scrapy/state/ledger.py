"""The ledger: when each host may be asked, and by which process (R4, R5; decisions 2, 3, 7)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from sqlalchemy import bindparam, or_, select, update

from walsh_scrapy.policy.pacing import (
    Answer,
    Event,
    Exchange,
    Hold,
    HostTimes,
    Lease,
    Release,
    Widen,
    after,
)
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.state._statements import Statement
from walsh_scrapy.state.engines import StateError
from walsh_scrapy.state.requests import RequestRecord, write_request
from walsh_scrapy.state.tables import choices, hosts
from walsh_scrapy.state.upsert import insert_if_new, row_of, upsert

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from walsh_scrapy.policy.backoff import Backoff
    from walsh_scrapy.state.database import Database

_NAMES: Final = tuple(field.name for field in fields(HostTimes))

_FIND: Final = Statement(
    select(*(hosts.c[name] for name in _NAMES), hosts.c.revision).where(
        hosts.c.host == bindparam("key")
    )
)
_UPDATE: Final = Statement(
    update(hosts)
    .where(hosts.c.host == bindparam("key"), hosts.c.revision == bindparam("seen"))
    .values({name: bindparam(name) for name in (*_NAMES, "revision")})
)
_WAITING: Final = select(*(hosts.c[name] for name in _NAMES), hosts.c.host).where(
    or_(
        *(hosts.c[name] > bindparam("now") for name in ("hold_until", "lease_until")),
        hosts.c.ended + hosts.c.interval > bindparam("now"),
    )
)
_UNIT: Final = select(choices.c.value).where(choices.c.name == "pace_by")
#: Rows kept in memory as they were last written: most of them change again within a second.
ROWS_IN_MEMORY = 10_000


class HostSnapshot(NamedTuple):
    """What the ledger knew of a host at one moment."""

    times: HostTimes
    now: float  #: epoch seconds

    @property
    def wait(self) -> float:
        """Seconds until the host may be asked; 0 or less if it may be asked now."""
        return self.times.ready_at(0.0) - self.now

    @property
    def hold(self) -> float:
        """Seconds for which the host is still on hold; 0 if it is not."""
        return max(0.0, self.times.hold_until - self.now)


class _Change(NamedTuple):
    before: HostTimes
    snapshot: HostSnapshot


class _Row(NamedTuple):
    times: HostTimes
    revision: int | None  #: None for a host that the ledger does not have yet


class Ledger:
    """The table by which all processes that share a state pace their requests.

    A change is a compare-and-set on the revision of the host's row, so only one of two processes
    that ask for a host at the same moment gets it, on any database. ``policy.pacing.after`` decides
    what changes. The clock is the database's, or ``clock``, which returns epoch seconds. It is read
    after the row: otherwise what another process wrote in between would lie in the future.

    Methods raise what ``State(failed=...)`` returns if the database fails: a StateError by
    default, ``RequestDeferred`` in a crawl.
    """

    def __init__(self, database: Database, clock: Callable[[], float] | None = None) -> None:
        self._database = database
        self._clock = clock
        self._holder = uuid4().hex
        self._rows: OrderedDict[str, _Row] = OrderedDict()

    def intervals(self, above: float) -> dict[str, float]:
        """Return the spacing, in seconds, of each host where it is more than ``above``."""
        wide = select(hosts.c.host, hosts.c.interval).where(hosts.c.interval > above)
        with self._database.read() as connection:
            return dict(connection.execute(wide).all())

    def waiting(self) -> dict[str, HostSnapshot]:
        """Return the hosts that may not be asked now: on hold, leased, or within their spacing."""
        with self._database.read() as connection:
            now = self._now(connection)
            rows = connection.execute(_WAITING, {"now": now}).all()
        found = {row[-1]: HostSnapshot(HostTimes(*row[:-1]).rebased(now), now) for row in rows}
        return {host: snapshot for host, snapshot in found.items() if snapshot.wait > 0}

    def find(self, host: str) -> HostSnapshot:
        """Return what is known of a host, now; a host that was never asked has empty times."""
        with self._database.read() as connection:
            times = self._remember(host, _find(connection, host))
            now = self._now(connection)
        return HostSnapshot(times.rebased(now), now)

    def take(self, host: str, spacing: float, timeout: float) -> float:
        """Lease a host for one request of at most ``timeout`` seconds.

        Return 0 if the lease is ours now, else the seconds after which to try again.
        """
        before, snapshot = self._change(host, Lease(spacing, timeout, self._holder))
        is_leased = before.ready_at(spacing) <= snapshot.now
        return 0.0 if is_leased else before.recheck_at(snapshot.now, spacing) - snapshot.now

    def release(
        self, host: str, exchange: Exchange, backoff: Backoff, record: RequestRecord
    ) -> HostSnapshot:
        """Release a host at the end of an exchange; log its request in the same transaction."""
        return self._change(host, Release(exchange, backoff, self._holder), record).snapshot

    def answered(self, host: str, exchange: Exchange, backoff: Backoff) -> HostSnapshot:
        """Write the hold that an exchange without a lease leads to."""
        return self._change(host, Answer(exchange, backoff)).snapshot

    def hold(self, host: str, seconds: float) -> HostSnapshot:
        """Put a host on hold for some seconds; a longer hold stays."""
        return self._change(host, Hold(seconds)).snapshot

    def widen(self, host: str, interval: float) -> HostSnapshot:
        """Give a host a spacing of at least ``interval`` seconds."""
        return self._change(host, Widen(interval)).snapshot

    def _change(self, host: str, event: Event, record: RequestRecord | None = None) -> _Change:
        """Write what an event changes in a host's row, and log a request with it."""
        remembered = self._rows.get(host)
        while True:
            with self._database.write() as connection:
                row = remembered or _find(connection, host)
                now = self._now(connection)
                before = row.times.rebased(now)
                wanted = after(before, event, now)
                if wanted == row.times and not remembered:
                    return _Change(before, HostSnapshot(self._remember(host, row), now))
                # A row from memory may be out of date, so it cannot tell that nothing changes.
                written = wanted != row.times and _replace(connection, host, wanted, row.revision)
                if written:
                    if record is not None:
                        write_request(connection, record)
                    revision = 0 if row.revision is None else row.revision + 1
                    times = self._remember(host, _Row(wanted, revision))
                    return _Change(before, HostSnapshot(times, now))
            remembered = None

    def pace_by(self, unit: str) -> None:
        """Pace by "host" or "domain" from now on.

        Raises StateError while hosts wait that were paced by the other unit: crawls that differ in
        it do not see each other's leases.
        """
        with self._database.read() as connection:
            if connection.scalar(_UNIT) == unit:
                return
        with self._database.write() as connection:
            found = connection.scalar(_UNIT)
            now = self._now(connection)
            waiting = connection.execute(_WAITING, {"now": now}).all()
            if found not in (None, unit) and waiting:
                last = max(HostTimes(*row[:-1]).ready_at(0.0) for row in waiting)
                raise StateError(
                    f"{self._database} is paced by {found}, and {len(waiting)} of its hosts wait, "
                    f"the last until {format_moment(last)}: a crawl with WALSH_PACE_BY = {unit!r} "
                    f"would not see that; wait, or set WALSH_PACE_BY = {found!r}"
                )
            upsert(connection, choices, {"name": "pace_by", "value": unit})

    def _now(self, connection: Connection) -> float:
        return self._clock() if self._clock else self._database.now(connection)

    def _remember(self, host: str, row: _Row) -> HostTimes:
        self._rows[host] = row
        self._rows.move_to_end(host)
        if len(self._rows) > ROWS_IN_MEMORY:
            self._rows.popitem(last=False)
        return row.times


def _find(connection: Connection, host: str) -> _Row:
    row = _FIND.first(connection, {"key": host})
    return _Row(HostTimes(), None) if row is None else _Row(HostTimes(*row[:-1]), row[-1])


def _replace(connection: Connection, host: str, times: HostTimes, revision: int | None) -> bool:
    """Write a row if it is still the one that was read; return False if it is not."""
    values = row_of(times)
    if revision is None:
        return insert_if_new(connection, hosts, {"host": host, "revision": 0, **values})
    values |= {"key": host, "seen": revision, "revision": revision + 1}
    return _UPDATE.run(connection, values) == 1
