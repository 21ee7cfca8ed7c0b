"""The log of requests: when, to which URL, what the gates answered, and the response.

It is kept for ``WALSH_LOG_DAYS``, to answer the questions of site owners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, insert, select

from walsh_scrapy.state._statements import Statement
from walsh_scrapy.state.evidence import NO_EVIDENCE, Evidence
from walsh_scrapy.state.rows import delete_old, row_of
from walsh_scrapy.state.tables import requests

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from walsh_scrapy.state.database import Database

_INSERT: Final = Statement(insert(requests))


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request and its outcome; ``status`` is None if there was no response but ``error``."""

    sent_at: float  #: epoch seconds
    host: str
    url: str
    gates: str
    status: int | None
    seconds: float
    error: str = ""
    run: int | None = None  #: its number in `runs`
    purpose: str = "target"  #: or "robots" or "blocklist"
    #: Seconds: the pause that was asked for before it, as the ledger told when it was leased.
    pause: float = 0.0
    #: Seconds for which its answer put the host on hold. The ledger adds what it decides.
    hold: float = 0.0
    evidence: Evidence = NO_EVIDENCE


def write_request(connection: Connection, record: RequestRecord) -> None:
    """Log one request within a transaction of the ledger."""
    row = row_of(record)
    _INSERT.run(connection, row | row_of(row.pop("evidence")))


class RequestStore:
    """Reads the log, and deletes its old rows; the ledger writes new ones.

    Methods raise what ``State(failed=...)`` returns if the database fails: a StateError by
    default, ``RequestDeferred`` in a crawl.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def last_of(self, run: int, begun: float, until: float) -> float | None:
        """Return when a run sent its last request until a moment; None if it sent none.

        Times are in epoch seconds. ``begun`` is its begin: what was sent before need not be looked
        through.
        """
        sent = select(func.max(requests.c.sent_at)).where(
            requests.c.sent_at.between(begun, until), requests.c.run == run
        )
        with self._database.read() as connection:
            last: float | None = connection.scalar(sent)
        return last

    def prune(self, now: float, log_seconds: float) -> None:
        """Delete rows that are older than ``log_seconds``; ``now`` is in epoch seconds."""
        delete_old(self._database, requests, requests.c.sent_at < now - log_seconds)
