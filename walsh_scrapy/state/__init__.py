"""What outlives a run: one small class for each question a crawl asks its past."""

from __future__ import annotations

from walsh_scrapy.state.database import Database, StateError
from walsh_scrapy.state.documents import DocumentStore
from walsh_scrapy.state.hosts import Ledger
from walsh_scrapy.state.robots import RobotsStore
from walsh_scrapy.state.sources import SourceStore
from walsh_scrapy.state.wirelog import WireLog

__all__ = ["State", "StateError"]


class State:
    """The state database with all its questions. Raises StateError if it cannot be used."""

    def __init__(self, url: str) -> None:
        self._database = Database(url)
        self.ledger = Ledger(self._database)
        self.robots = RobotsStore(self._database)
        self.documents = DocumentStore(self._database)
        self.sources = SourceStore(self._database)
        self.wirelog = WireLog(self._database)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()
