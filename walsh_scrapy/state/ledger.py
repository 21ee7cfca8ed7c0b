"""The ledger: when each host may be asked, and by which process (R4, R5; decisions 2, 28, 31)."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from sqlalchemy import bindparam, case, func, or_, select

from walsh_scrapy.policy.hosttimes import HostTimes
from walsh_scrapy.policy.pacing import (
    Event,
    Exchange,
    GiveBack,
    Hold,
    Lease,
    Lift,
    OperatorPause,
    Release,
    UnleasedEnd,
    Widen,
    after,
)
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.engines import StateError
from walsh_scrapy.state.evidence import RequestRecord, write_request
from walsh_scrapy.state.hosts import (
    TIMES,
    Act,
    HostSnapshot,
    LedgerRow,
    find_row,
    write_act,
    write_row,
)
from walsh_scrapy.state.pruning import OldRows
from walsh_scrapy.state.rows import upsert
from walsh_scrapy.state.tables import choices, hosts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sqlalchemy import ColumnElement, Select

    from walsh_scrapy.policy.backoff import Backoff
    from walsh_scrapy.policy.hosttimes import HoldBy
    from walsh_scrapy.state.connection import Connection
    from walsh_scrapy.state.database import Database
    from walsh_scrapy.state.hosts import ActName

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


class LeaseResult(NamedTuple):
    """What the ledger answers to a process that asks to lease a host."""

    wait: float  #: seconds after which to ask again; 0 if the lease is ours now
    #: Seconds that had to lie between the exchange before the lease and this one.
    pause: float = 0.0
    ended: float | None = None  #: when the last exchange with the host ended, whoever made it


class _End(NamedTuple):
    """The end of an exchange that is not written yet."""

    event: Release
    record: RequestRecord
    at: float  #: epoch seconds


class _Change(NamedTuple):
    before: HostTimes
    snapshot: HostSnapshot


class Ledger(Store):
    """The table by which all processes that share a state pace their requests.

    A change is a compare-and-set on the revision of the host's row, so only one of two processes
    that ask for a host at the same moment gets it, on any database. ``policy.pacing.after`` decides
    what changes. The clock is the database's, or ``clock``, which returns epoch seconds. It is read
    after the row: otherwise what another process wrote in between would lie in the future.
    """

    def __init__(self, database: Database, clock: Callable[[], float] | None = None) -> None:
        super().__init__(database)
        self._clock = clock
        self._holder = uuid4().hex
        self._rows: OrderedDict[str, LedgerRow] = OrderedDict()
        self._ends: dict[str, _End] = {}  # by host, each of which is still leased

    def intervals(self, above: float) -> dict[str, float]:
        """Return the spacing, in seconds, of each host where it is more than ``above``."""
        wide = select(hosts.c.host, hosts.c.interval, hosts.c.pause).where(
            or_(hosts.c.interval > above, hosts.c.pause > above)
        )
        with self._database.read() as connection:
            rows = connection.all(wide)
        return {host: max(interval, pause) for host, interval, pause in rows}

    def silent_hosts(self) -> frozenset[str]:
        """Return the hosts that were unreachable when they were asked last (decision 28)."""
        silent = select(hosts.c.host).where(hosts.c.silences > 0)
        with self._database.read() as connection:
            return frozenset(connection.scalars(silent))

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
        if host in self._ends:
            self.write_end(host)
        with self._database.read() as connection:
            times = self._remember(host, find_row(connection, host))
            now = self._now()
        return HostSnapshot(times.with_clock_at(now), now)

    def take(
        self, host: str, spacing: float, timeout: float, *, most: float = math.inf
    ) -> LeaseResult:
        """Lease a host for one request of at most ``timeout`` seconds, if it is ready.

        Spacing and hold count for at most ``most`` seconds.
        """
        before, snapshot = self._change(host, Lease(spacing, timeout, self._holder, most))
        times, spacing = before.with_limit(most), min(spacing, most)
        if times.ready_at(spacing) > snapshot.now:
            return LeaseResult(times.recheck_at(snapshot.now, spacing) - snapshot.now)
        pause = 0.0 if times.ended is None else times.spacing_with(spacing)
        return LeaseResult(0.0, pause, before.ended)

    def release(
        self,
        host: str,
        exchange: Exchange,
        backoff: Backoff,
        record: RequestRecord,
        *,
        later: bool = False,
    ) -> HostSnapshot:
        """Release a host at the end of an exchange; log its request in the same transaction.

        With ``later`` nothing is written yet: `write_end` does that, or the next change of the
        host. The lease protects the host until then.
        """
        event, row = Release(exchange, backoff, self._holder), self._rows.get(host)
        if not later or row is None:
            return self._change(host, event, record).snapshot
        end = self._ends[host] = _End(event, record, self._now())
        return HostSnapshot(after(row.times.with_clock_at(end.at), event, end.at), end.at)

    def write_end(self, host: str, also: Callable[[Connection], None] | None = None) -> None:
        """Write the end of the last exchange with a host, if it was left for later.

        ``also`` writes what came of it, in the same transaction; in one of its own if there is no
        such end.
        """
        if end := self._ends.pop(host, None):
            self._change(host, end.event, end.record, at=end.at, also=also)
        elif also is not None:
            with self._database.write() as connection:
                also(connection)

    def write_ends(self) -> None:
        """Write all ends that were left for later."""
        for host in list(self._ends):
            self.write_end(host)

    def give_back(self, host: str) -> None:
        """Release a host that was leased for a request which was never sent (decision 29)."""
        self._change(host, GiveBack(self._holder))

    def answered(self, host: str, exchange: Exchange, backoff: Backoff) -> HostSnapshot:
        """Write the hold that an exchange without a lease leads to."""
        return self._change(host, UnleasedEnd(exchange, backoff)).snapshot

    def hold(self, host: str, seconds: float, by: HoldBy = "") -> HostSnapshot:
        """Put a host on hold for some seconds, and record by what; a longer hold stays."""
        return self._change(host, Hold(seconds, by)).snapshot

    def widen(self, host: str, interval: float) -> HostSnapshot:
        """Give a host a spacing of at least ``interval`` seconds."""
        return self._change(host, Widen(interval)).snapshot

    def lift(self, host: str, reason: str) -> float:
        """End the hold of a host, and record the act with its reason (decision 31).

        Return the seconds that were left of it; 0 if there was none, and nothing is recorded.
        """
        before, snapshot = self._change(host, Lift(), act=("release", reason))
        return max(0.0, before.hold_until - snapshot.now)

    def pause(self, host: str, seconds: float, reason: str) -> HostSnapshot:
        """Give a host a spacing of at least ``seconds`` for good; 0 ends that (decision 31).

        The act is recorded with its reason, if it changes anything.
        """
        return self._change(host, OperatorPause(seconds), act=("pause", reason)).snapshot

    def _found(self, statement: Select[Any]) -> dict[str, HostSnapshot]:
        with self._database.read() as connection:
            now = self._now()
            rows = connection.all(statement, {"now": now})
        return {row[-1]: HostSnapshot(HostTimes(*row[:-1]).with_clock_at(now), now) for row in rows}

    def _change(
        self,
        host: str,
        event: Event,
        record: RequestRecord | None = None,
        act: tuple[ActName, str] | None = None,
        *,
        at: float | None = None,
        also: Callable[[Connection], None] | None = None,
    ) -> _Change:
        """Write what an event changes in a host's row, and log a request or an act with it.

        ``at`` is when the event was, in epoch seconds, if that is not now; ``also`` writes more.
        """
        if host in self._ends:
            self.write_end(host)
        remembered = self._rows.get(host)
        while True:
            with self._database.write() as connection:
                row = remembered or find_row(connection, host)
                now = self._now()
                moment = now if at is None else at
                before = row.times.with_clock_at(now)
                wanted = after(before, event, moment)
                is_same = wanted == row.times
                # A row from memory may be out of date, so it cannot tell that nothing changes.
                written = (
                    not remembered if is_same else write_row(connection, host, wanted, row.revision)
                )
                if written:
                    if record is not None:
                        hold = max(record.hold, wanted.hold_until - moment, 0.0)
                        write_request(connection, replace(record, hold=hold))
                    if act is not None and not is_same:
                        name, reason = act
                        left = max(0.0, before.hold_until - now)
                        seconds = left if name == "release" else wanted.pause
                        write_act(connection, Act(now, host, name, seconds, reason))
                    if also is not None:
                        also(connection)
                    if not is_same:
                        revision = 0 if row.revision is None else row.revision + 1
                        row = LedgerRow(wanted, revision)
                    times = self._remember(host, row)
                    return _Change(before, HostSnapshot(times, now))
            remembered = None

    def old_rows(self) -> OldRows:
        """Return the rows of hosts that nothing concerned in 90 days.

        All that such a row says is over by then: spacing, hold, lease, strikes and silences. A
        longer spacing or hold keeps its row until it ends, and an operator's pause for good. A
        known Crawl-delay is not kept longer: the next robots.txt of the host says it again.
        """
        before = self._now() - KEEP_SECONDS
        is_old = (_last_moment() < before) & (hosts.c.pause == 0.0)
        return OldRows(hosts, is_old, hosts.c.ended)

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
            now = self._now()
            waiting = connection.all(_WAITING, {"now": now})
            paused = connection.scalars(_PAUSED)
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

    def _now(self) -> float:
        return self._clock() if self._clock else self._database.now()

    def _remember(self, host: str, row: LedgerRow) -> HostTimes:
        self._rows[host] = row
        self._rows.move_to_end(host)
        if len(self._rows) > ROWS_IN_MEMORY:
            self._rows.popitem(last=False)
        return row.times


def _last_moment() -> ColumnElement[float]:
    """Return the last moment that a row is about."""
    ended = func.coalesce(hosts.c.ended, 0.0)
    spaced = case((hosts.c.lease_until > ended, hosts.c.lease_until), else_=ended)
    last = spaced + hosts.c.interval
    for moment in (hosts.c.hold_until, hosts.c.silent_at, hosts.c.struck_at):
        last = case((moment > last, moment), else_=last)
    return last
