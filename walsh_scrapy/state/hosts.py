"""Hosts: what the state keeps of each, and what the operator did to them (decision 31)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from sqlalchemy import bindparam, func, insert, select, update

from walsh_scrapy.policy.hosttimes import HostTimes
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.rows import in_parts, insert_if_new, insert_into, row_of
from walsh_scrapy.state.tables import acts, hosts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from sqlalchemy import Connection, Select

#: Names of the columns that are fields of `HostTimes`.
TIMES: Final = tuple(field.name for field in fields(HostTimes))
_FIND: Final = select(*(hosts.c[name] for name in TIMES), hosts.c.revision).where(
    hosts.c.host == bindparam("key")
)
_FIND_SEVERAL: Final = select(hosts.c.host, *(hosts.c[name] for name in TIMES), hosts.c.revision)
# Rows that another process is changing are left out; SQLite has one writer at a time anyway.
_LOCK_SEVERAL: Final = _FIND_SEVERAL.with_for_update(skip_locked=True)
_UPDATE: Final = (
    update(hosts)
    .where(hosts.c.host == bindparam("key"), hosts.c.revision == bindparam("seen"))
    .values({name: bindparam(name) for name in (*TIMES, "revision")})
)
_ACTS: Final = select(*acts.c["at", "host", "act", "seconds", "reason"]).order_by(acts.c.id)
#: Why a host has to wait: on hold, asked by another process, or within its spacing.
WaitReason: TypeAlias = Literal["hold", "lease", "spacing"]
ActName: TypeAlias = Literal["release", "pause"]


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

    def bounded(self, most: float) -> HostSnapshot:
        """Return the same with a spacing and a hold of at most ``most`` seconds."""
        return self._replace(times=self.times.with_limit(most))

    @property
    def reason(self) -> WaitReason | None:
        """Why the host may not be asked for so long; None if it may be asked now."""
        until = self.times.ready_at(0.0)
        if until <= self.now:
            return None
        if self.times.hold_until >= until:
            return "hold"
        return "lease" if self.times.lease_until > self.now else "spacing"


class LedgerRow(NamedTuple):
    """The row of a host."""

    times: HostTimes
    revision: int | None  #: None for a host that the ledger does not have yet


def find_row(connection: Connection, host: str) -> LedgerRow:
    """Return the row of a host, with empty times if there is none."""
    row = connection.execute(_FIND, {"key": host}).first()
    return LedgerRow(HostTimes(), None) if row is None else LedgerRow(HostTimes(*row[:-1]), row[-1])


def find_rows(connection: Connection, names: Sequence[str]) -> dict[str, LedgerRow]:
    """Return the rows of hosts by their names."""
    found = {name: LedgerRow(HostTimes(), None) for name in names}
    for name, *times, revision in _of_hosts(connection, _FIND_SEVERAL, names):
        found[name] = LedgerRow(HostTimes(*times), revision)
    return found


def _of_hosts(
    connection: Connection, statement: Select[Any], names: Sequence[str]
) -> Iterator[Sequence[Any]]:
    for some in in_parts(names):
        yield from connection.execute(statement.where(hosts.c.host.in_(some)))


def find_locked(connection: Connection, names: Sequence[str]) -> dict[str, LedgerRow]:
    """Lock and return the rows of hosts that no other process is changing, and empty ones."""
    found = {name: LedgerRow(HostTimes(), None) for name in names}
    for name, *times, revision in _of_hosts(connection, _LOCK_SEVERAL, names):
        found[name] = LedgerRow(HostTimes(*times), revision)
    missing = [name for name, row in found.items() if row.revision is None]
    for name, row in find_rows(connection, missing).items():
        if row.revision is not None:  # another process is changing it
            del found[name]
    return found


def update_rows(connection: Connection, rows: Mapping[str, LedgerRow]) -> None:
    """Write rows that are locked; each has its new revision."""
    if rows:
        connection.execute(
            _UPDATE,
            [
                row_of(row.times)
                | {"key": host, "seen": (row.revision or 0) - 1, "revision": row.revision}
                for host, row in rows.items()
            ],
        )


def insert_rows(connection: Connection, rows: Mapping[str, LedgerRow]) -> frozenset[str]:
    """Insert rows, and return the hosts that had none."""
    given = [
        {"host": host, "revision": row.revision, **row_of(row.times)}
        for host, row in sorted(rows.items())  # so that two processes cannot block each other
    ]
    if not given:
        return frozenset()
    statement = insert_into(connection.dialect.name, hosts).on_conflict_do_nothing()
    return frozenset(connection.scalars(statement.returning(hosts.c.host), given))


def write_row(connection: Connection, host: str, times: HostTimes, revision: int | None) -> bool:
    """Write a row if it is still the one that was read; return False if it is not."""
    values = row_of(times)
    if revision is None:
        return insert_if_new(connection, hosts, {"host": host, "revision": 0, **values}) == 1
    values |= {"key": host, "seen": revision, "revision": revision + 1}
    return connection.execute(_UPDATE, values).rowcount == 1


@dataclass(frozen=True, slots=True)
class Act:
    """One act of the operator. ``at`` is in epoch seconds."""

    at: float
    host: str
    act: ActName
    seconds: float  #: the new pause, or what was left of the hold
    reason: str


def write_act(connection: Connection, act: Act) -> None:
    """Record one act within a transaction of the ledger."""
    connection.execute(insert(acts), row_of(act))


class ActStore(Store):
    """Reads acts; the ledger writes them."""

    def of(self, names: Collection[str]) -> list[Act]:
        """Return all acts on the hosts with these names in the ledger, the first one first."""
        return self._found(_ACTS.where(acts.c.host.in_(names)))

    def last(self) -> dict[str, Act]:
        """Return the last act of each host that has one."""
        newest = select(func.max(acts.c.id)).group_by(acts.c.host)
        return {act.host: act for act in self._found(_ACTS.where(acts.c.id.in_(newest)))}

    def _found(self, statement: Select[Any]) -> list[Act]:
        rows = self._database.read(lambda connection: connection.execute(statement).all())
        return [Act(*row) for row in rows]
