"""Acts of the operator: what was changed about a host, when, and why (decision 31)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from sqlalchemy import func, insert, select

from walsh_scrapy.state.database import Store
from walsh_scrapy.state.rows import row_of
from walsh_scrapy.state.tables import acts

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection


_COLUMNS: Final = (acts.c.at, acts.c.host, acts.c.act, acts.c.seconds, acts.c.reason)
ActName: TypeAlias = Literal["release", "pause"]


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
        wanted = select(*_COLUMNS).where(acts.c.host.in_(names)).order_by(acts.c.id)
        with self._database.read() as connection:
            return [Act(*row) for row in connection.execute(wanted)]

    def last(self) -> dict[str, Act]:
        """Return the last act of each host that has one."""
        newest = select(func.max(acts.c.id)).group_by(acts.c.host)
        with self._database.read() as connection:
            rows = connection.execute(select(*_COLUMNS).where(acts.c.id.in_(newest))).all()
        return {row.host: Act(*row) for row in rows}
