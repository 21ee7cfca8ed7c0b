"""Every request that went out: when, where to, what the gates said, what came back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert

from walsh_scrapy.state._statements import Statement
from walsh_scrapy.state.rows import row_of
from walsh_scrapy.state.tables import requests

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from walsh_scrapy.state.database import Database

KEEP_SECONDS = 30 * 86_400.0
_INSERT: Final = Statement(insert(requests))


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its end; a status of None means that ``error`` came instead."""

    sent_at: float
    host: str
    url: str
    gates: str
    status: int | None
    seconds: float
    error: str = ""


def note(connection: Connection, exchange: Exchange) -> None:
    """Write one exchange into the log, so that a site owner's question can be answered."""
    _INSERT.run(connection, row_of(exchange))


class WireLog:
    """The log as a whole."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def prune(self, now: float) -> None:
        """Forget what is older than 30 days."""
        with self._database.write() as connection:
            connection.execute(delete(requests).where(requests.c.sent_at < now - KEEP_SECONDS))
