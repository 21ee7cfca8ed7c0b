"""Claims: the hosts that a worker has for itself, and the workers of a state (decision 41)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from sqlalchemy import Double, bindparam, case, delete, func, select, update

from walsh_scrapy.policy.claims import CLAIM_SECONDS
from walsh_scrapy.policy.hosttimes import LEASE_MARGIN
from walsh_scrapy.policy.pacing import Claim, Event, GiveBack, after
from walsh_scrapy.state.hostrows import HostRows
from walsh_scrapy.state.hosts import LedgerRow, find_locked, insert_rows, update_rows
from walsh_scrapy.state.rows import in_parts, upsert
from walsh_scrapy.state.tables import hosts, workers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import Connection

    from walsh_scrapy.policy.hosttimes import HostTimes
    from walsh_scrapy.policy.pacing import Release
    from walsh_scrapy.state.database import Database
    from walsh_scrapy.state.log import LoggedLease, RequestRecord

_LIVING: Final = workers.c.until > bindparam("now")
_COUNT: Final = select(func.count()).select_from(workers).where(_LIVING)
_CLAIMED: Final = (
    select(workers.c.run, workers.c.began, func.count(hosts.c.host))
    .outerjoin(
        hosts, (hosts.c.holder == workers.c.holder) & (hosts.c.lease_until > bindparam("now"))
    )
    .where(_LIVING)
    .group_by(workers.c.holder, workers.c.run, workers.c.began)
    .order_by(workers.c.began)
)
#: What `policy.pacing.Claim` does to rows of its holder. Their revision stays: nothing that another
#: process decides by it has changed.
_LAST: Final = bindparam("last", type_=Double)
_RENEW: Final = (
    update(hosts)
    .where(hosts.c.host.in_(bindparam("names", expanding=True)), hosts.c.holder == bindparam("us"))
    .values(lease_until=case((hosts.c.lease_until < _LAST, _LAST), else_=hosts.c.lease_until))
    .returning(hosts.c.host)
)


class WorkerRow(NamedTuple):
    """A worker that lives. ``began`` is in epoch seconds."""

    run: int | None  #: its number in `runs`
    began: float
    hosts: int  #: that it has claimed or leased


class Claimed(NamedTuple):
    """What came of a claim, by the names of the hosts; the others have nothing for this worker."""

    ours: list[str]
    busy: list[str]  #: another process has them now


class End(NamedTuple):
    """The end of an exchange."""

    event: Release
    record: RequestRecord
    at: float | None = None  #: epoch seconds; None for now


class Held(NamedTuple):
    """What this process has of a host."""

    is_claimed: bool = False
    ends_at: float = math.inf  #: epoch seconds; until then the claim lasts, and is not renewed
    is_last: bool = False  #: the claim ends with the next exchange that does
    put_off: bool = False  #: some of its work is put off then
    is_out: bool = False  #: a request was leased, and its end is not written
    logged: LoggedLease | None = None  #: that request in the log
    end: End | None = None  #: of that request, which is written later

    @property
    def goes_on(self) -> bool:
        """Whether the claim goes on after the exchange. Only then it is renewed."""
        return self.is_claimed and not self.is_last


_NOTHING: Final = Held()


class Claims(HostRows):
    """The rows of hosts, some of which are claimed by this process.

    A claim is a lease that goes on between the exchanges of its holder, and is renewed until it is
    given up. If it is not renewed, for whatever reason, it runs out by itself.
    """

    def __init__(self, database: Database, clock: Callable[[], float] | None = None) -> None:
        super().__init__(database, clock)
        self._holder = uuid4().hex
        self._held: dict[str, Held] = {}  # by host; hosts that it has nothing of are not here
        self._claimed_until = 0.0

    def claim(self, names: Sequence[str], began: float) -> Claimed:
        """Claim hosts for this worker, which began at ``began``, in epoch seconds.

        Rows that another process is changing at the moment are busy too.
        """

        def write(connection: Connection) -> tuple[float, dict[str, LedgerRow]]:
            now = self._now()
            claim = Claim(self._holder, now + CLAIM_SECONDS, began)
            return now, self._change_all(connection, names, claim)

        now, found = self._database.write(write)
        rows = self._remembered(found)
        got = [name for name in names if name in rows and rows[name].holder == self._holder]
        others = [name for name in names if name not in got]
        busy = [name for name in others if name not in rows or rows[name].lease_until > now]
        self._keep(got, now)
        return Claimed(got, busy)

    def renew(self, run: int | None, began: float) -> int:
        """Keep what is claimed, say that this worker lives, and return how many workers do."""
        names = self._claimed()

        def write(connection: Connection) -> tuple[float, set[str], int]:
            now = self._now()
            until = now + CLAIM_SECONDS
            row = {"holder": self._holder, "run": run, "began": began, "until": until}
            upsert(connection, workers, row)
            values = {"us": self._holder, "last": until + LEASE_MARGIN}
            kept = set[str]()
            for some in in_parts(names):
                kept.update(connection.scalars(_RENEW, {**values, "names": some}))
            return until, kept, connection.execute(_COUNT, {"now": now}).scalar_one()

        self._claimed_until, kept, count = self._database.write(write)
        for lost in {*names} - kept:
            self._note(lost, is_claimed=False)
        return count

    def finish(self, host: str, *, put_off: bool = False) -> None:
        """Give a host up with the end of its exchange, if that is not written yet.

        `unclaim` does so if it is. Until either is done, the claim is not renewed.
        """
        if self._has(host).is_claimed:
            self._note(host, is_last=True, put_off=put_off)

    def unclaim(self, names: Collection[str], *, put_off: bool = False) -> None:
        """Give hosts up; with ``put_off`` some of their work was put off to a later run."""
        ours = [name for name in sorted(names) if self._has(name).is_claimed]
        for name in ours:
            self._note(name, is_claimed=False, ends_at=math.inf, is_last=False, put_off=False)
        if ours:
            event = GiveBack(self._holder, put_off=put_off)
            self._remembered(
                self._database.write(lambda connection: self._change_all(connection, ours, event))
            )

    def leave(self) -> None:
        """Give all hosts up: this worker ends. A process that never claimed one is none."""
        if not self._claimed_until:
            return
        self.unclaim([host for host, held in self._held.items() if held.is_claimed])
        is_over = (workers.c.holder == self._holder) | (workers.c.until < self._now())
        self._database.write(lambda connection: connection.execute(delete(workers).where(is_over)))

    def workers(self) -> list[WorkerRow]:
        """Return the workers that live, the one that began first comes first."""
        rows = self._database.read(
            lambda connection: connection.execute(_CLAIMED, {"now": self._now()}).all()
        )
        return [WorkerRow(*row) for row in rows]

    def _has(self, host: str) -> Held:
        """Return what this process has of a host."""
        return self._held.get(host, _NOTHING)

    def _note(self, host: str, **changes: Any) -> None:  # noqa: ANN401 - fields of Held
        """Change what this process has of a host."""
        held = self._has(host)._replace(**changes)
        if held == _NOTHING:
            self._held.pop(host, None)
        else:
            self._held[host] = held

    def _keep(self, names: Sequence[str], now: float, ends_at: float = math.inf) -> None:
        """Note that hosts were claimed at a moment, in epoch seconds; see `Held` for the end."""
        if not self._claimed():  # otherwise those claimed before run out sooner, or are renewed
            self._claimed_until = now + CLAIM_SECONDS
        for name in names:
            self._note(name, is_claimed=True, ends_at=ends_at, is_last=False, put_off=False)

    def _claimed(self) -> list[str]:
        """Return the hosts whose claims are renewed."""
        held = self._held.items()
        return [host for host, each in held if each.goes_on and each.ends_at == math.inf]

    def _claim_end(self, host: str) -> float:
        """Return until when a host is claimed, in epoch seconds; 0 if the next end gives it up."""
        held = self._has(host)
        if not held.goes_on:
            return 0.0
        if held.ends_at < math.inf:
            return held.ends_at
        # No claim lasts longer, even if the clock was set back since.
        return min(self._claimed_until, self._now() + CLAIM_SECONDS)

    def _change_all(
        self, connection: Connection, names: Sequence[str], event: Event
    ) -> dict[str, LedgerRow]:
        """Write what an event changes in the rows of several hosts, and return these rows.

        Hosts whose rows another process is changing at the moment are left out.
        """
        rows, now = find_locked(connection, names), self._now()
        changed: dict[str, LedgerRow] = {}
        made: dict[str, LedgerRow] = {}
        for host, row in rows.items():
            times = after(row.times.with_clock_at(now), event, now)
            if row.revision is None:
                made[host] = LedgerRow(times, 0)
            elif times != row.times:
                changed[host] = LedgerRow(times, row.revision + 1)
        update_rows(connection, changed)
        new = insert_rows(connection, made)
        found = rows | changed | {host: row for host, row in made.items() if host in new}
        for host in made.keys() - new:  # another process has just made it
            del found[host]
        return found

    def _remembered(self, rows: dict[str, LedgerRow]) -> dict[str, HostTimes]:
        """Remember rows as they were committed, and return their times."""
        for host, row in rows.items():
            self._rows[host] = row
        return {host: row.times for host, row in rows.items()}
