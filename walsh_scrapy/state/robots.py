"""Copies of robots.txt, one for each origin: scheme, host and port (R2, decision 5)."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, select, update

from walsh_scrapy.policy.robots.access import RobotsCopy
from walsh_scrapy.state._statements import Statement
from walsh_scrapy.state.tables import robots
from walsh_scrapy.state.upsert import row_of, upsert

if TYPE_CHECKING:
    from walsh_scrapy.state.database import Database

_COLUMNS: Final = tuple(robots.c[field.name] for field in fields(RobotsCopy))
_FIND: Final = Statement(select(*_COLUMNS).where(robots.c.origin == bindparam("key")))


class RobotsStore:
    """Keeps the last copy of each file, so that all runs of a day request it once.

    Methods raise what ``State(failed=...)`` returns if the database fails: a StateError by
    default, ``RequestDeferred`` in a crawl.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, origin: str) -> RobotsCopy | None:
        """Return the copy kept for an origin, however old."""
        with self._database.read() as connection:
            row = _FIND.first(connection, {"key": origin})
        return None if row is None else RobotsCopy(*row)

    def keep(self, origin: str, copy: RobotsCopy) -> None:
        """Replace the copy kept for an origin."""
        with self._database.write() as connection:
            upsert(connection, robots, {"origin": origin, **row_of(copy)})

    def set_unused(self, origin: str, *, unused: bool) -> None:
        """Set whether a request that was deferred by this copy is still to be sent (decision 7)."""
        with self._database.write() as connection:
            connection.execute(
                update(robots).where(robots.c.origin == origin).values(unused=unused)
            )
