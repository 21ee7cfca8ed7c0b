"""The latest times in the state: one that lies in the future was written by a wrong clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from walsh_scrapy.state.tables import blocklist, entries, hosts, requests, robots, runs, sources

if TYPE_CHECKING:
    from walsh_scrapy.state.database import Database

_COLUMNS: Final = (
    runs.c.begun,
    runs.c.ended,
    requests.c.sent_at,
    entries.c.first_seen,
    sources.c.fetched_at,
    hosts.c.ended,
    hosts.c.hold_since,
    robots.c.fetched_at,
    blocklist.c.checked_at,
)


class MomentStore:
    """Reads times. Raises StateError if the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> float:
        """Return epoch seconds by the clock that all processes on the state share."""
        with self._database.read() as connection:
            return self._database.now(connection)

    def latest(self) -> dict[str, float]:
        """Return the latest time of each table that has one, in epoch seconds."""
        latest: dict[str, float] = {}
        with self._database.read() as connection:
            for column in _COLUMNS:
                name, moment = column.table.name, connection.scalar(select(func.max(column)))
                if moment:
                    latest[name] = max(moment, latest.get(name, moment))
        return latest
