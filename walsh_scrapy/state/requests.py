"""The log of requests: when, to which URL, what the gates answered, and the response.

It is kept for ``WALSH_LOG_DAYS``, to answer the questions of site owners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import insert

from walsh_scrapy.state._statements import Statement
from walsh_scrapy.state.evidence import NO_EVIDENCE, Evidence
from walsh_scrapy.state.rows import row_of
from walsh_scrapy.state.tables import requests

if TYPE_CHECKING:
    from sqlalchemy import Connection

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
