"""What outlives a run: one small class for each question a crawl asks its past."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.state.database import Database, exists
from walsh_scrapy.state.documents import DocumentStore
from walsh_scrapy.state.engines import StateError
from walsh_scrapy.state.entries import EntryStore
from walsh_scrapy.state.indexes import IndexStore
from walsh_scrapy.state.ledger import Ledger
from walsh_scrapy.state.requests import RequestStore
from walsh_scrapy.state.robots import RobotsStore
from walsh_scrapy.state.sources import SourceStore

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["State", "StateError"]


class State:
    """The state database with all its questions. Raises StateError if it cannot be used.

    ``clock`` gives the epoch seconds by which all who share the state pace themselves, if not the
    database does. ``failed`` says what to raise when the state fails while it is in use.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] | None = None,
        failed: Callable[[StateError], Exception] = lambda error: error,
    ) -> None:
        self._database = Database(url, failed)
        self.ledger = Ledger(self._database, clock)
        self.robots = RobotsStore(self._database)
        self.documents = DocumentStore(self._database)
        self.sources = SourceStore(self._database)
        self.indexes = IndexStore(self._database)
        self.entries = EntryStore(self._database)
        self.requests = RequestStore(self._database)

    @classmethod
    def existing(cls, url: str) -> State | None:
        """Open the state at ``url``, or return None where there never was one; make none."""
        return cls(url) if exists(url) else None

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()
