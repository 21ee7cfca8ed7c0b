"""The record of requests: when, where to, what the gates answered, what came back.

A site owner's question is answered from it, for 30 days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert

from walsh_scrapy.state._statements import Statement
from walsh_scrapy.state.tables import requests
from walsh_scrapy.state.upsert import row_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from walsh_scrapy.state.database import Database

KEEP_SECONDS = 30 * 86_400.0
_INSERT: Final = Statement(insert(requests))


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request and its end; a status of None means that ``error`` came instead."""

    sent_at: float  #: epoch seconds
    host: str
    url: str
    gates: str
    status: int | None
    seconds: float
    error: str = ""


def write_request(connection: Connection, record: RequestRecord) -> None:
    """Write one request within a transaction of the ledger."""
    _INSERT.run(connection, row_of(record))


class RequestStore:
    """The record as a whole. Raises what ``State`` was told to raise when the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def prune(self, now: float) -> None:
        """Delete what is older than 30 days; ``now`` is in epoch seconds."""
        with self._database.write() as connection:
            connection.execute(delete(requests).where(requests.c.sent_at < now - KEEP_SECONDS))
