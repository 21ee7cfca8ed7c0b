"""Every request that went out: when, where to, what the gates said, what came back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert

from walsh_scrapy.state.tables import requests

if TYPE_CHECKING:
    from walsh_scrapy.state.database import Database

KEEP_SECONDS = 30 * 86_400.0


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


class WireLog:
    """Writes what was sent, so that an operator can answer a site owner's question."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, exchange: Exchange) -> None:
        """Note one exchange."""
        with self._database.write() as connection:
            connection.execute(insert(requests), asdict(exchange))

    def prune(self, now: float) -> None:
        """Forget what is older than 30 days."""
        with self._database.write() as connection:
            connection.execute(delete(requests).where(requests.c.sent_at < now - KEEP_SECONDS))
