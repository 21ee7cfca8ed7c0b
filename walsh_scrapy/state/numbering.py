"""Numbers of entries, in the order in which readers get them.

The time at which an entry was first seen is no such order: of two transactions the later one may
commit first. So an entry has no number when it is inserted, which makes nobody wait. What is
committed gets its numbers afterwards: with the beat of a crawl, at the end of a run, and before
somebody reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, bindparam, cast, func, select, update

from walsh_scrapy.state.tables import LAST_SEQ, STATE_ID, choices, entries, new_state_id

if TYPE_CHECKING:
    from sqlalchemy import Connection

_IS_LAST: Final = choices.c.name == LAST_SEQ
_HAS_UNNUMBERED_SQL: Final = select(entries.c.key).where(entries.c.seq.is_(None)).limit(1)
# Its lock lets one transaction number at a time. SQLite has no such lock, and needs none.
_LAST_SQL: Final = select(cast(choices.c.value, BigInteger)).where(_IS_LAST)
_LOCK_SQL: Final = _LAST_SQL.with_for_update()
# PostgreSQL allows no window function beside FOR UPDATE. Rows that another transaction changes now
# get a number the next time.
_unnumbered = (
    select(entries.c.key, entries.c.first_seen)
    .where(entries.c.seq.is_(None))
    .with_for_update(skip_locked=True)
    .subquery()
)
_places = select(
    _unnumbered.c.key,
    func.row_number().over(order_by=(_unnumbered.c.first_seen, _unnumbered.c.key)).label("place"),
).subquery()
_NUMBER_SQL: Final = (
    update(entries)
    .where(entries.c.key == _places.c.key)
    .values(seq=bindparam("last") + _places.c.place)
)
_SET_LAST_SQL: Final = update(choices).where(_IS_LAST).values(value=bindparam("last"))
_IS_ID: Final = choices.c.name == STATE_ID
_STATE_ID_SQL: Final = select(choices.c.value).where(_IS_ID)


def has_unnumbered(connection: Connection) -> bool:
    """Return True if an entry has no number yet."""
    return connection.scalar(_HAS_UNNUMBERED_SQL) is not None


def number_entries(connection: Connection) -> None:
    """Give the next numbers to all entries that are committed and have none.

    A number is never used again, also if its entry is deleted.
    """
    if not has_unnumbered(connection):
        return
    last = connection.scalars(_LOCK_SQL).one()
    # A statement of its own: on PostgreSQL it sees what was committed before it got the lock.
    numbered = connection.execute(_NUMBER_SQL, {"last": last}).rowcount
    connection.execute(_SET_LAST_SQL, {"last": str(last + numbered)})


def last_number(connection: Connection) -> int:
    """Return the largest number that an entry ever got, 0 for none."""
    return connection.scalars(_LAST_SQL).one()


def state_id(connection: Connection) -> str:
    """Return the id of the state, which tells its numbers from those of another state."""
    identifier: str = connection.scalars(_STATE_ID_SQL).one()
    return identifier


def renew_id(connection: Connection) -> None:
    """Give the state a new id: it is a copy, and the other one gives the next numbers too."""
    connection.execute(update(choices).where(_IS_ID).values(value=new_state_id()))
