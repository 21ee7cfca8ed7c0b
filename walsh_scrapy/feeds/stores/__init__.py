"""The stores of sources, their files and their entries, in the database of a state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from walsh_scrapy.feeds.stores.entrystore import EntryStore, HandoverStore
from walsh_scrapy.feeds.stores.forgetting import ForgetStore
from walsh_scrapy.feeds.stores.sourcestore import LlmsTxtStore, SourceStore
from walsh_scrapy.feeds.stores.sync import DeclarationCopies, Sync, SyncedFile
from walsh_scrapy.state.problemview import FILE_SECONDS
from walsh_scrapy.state.tables import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from walsh_scrapy.state import State


class Stores:
    """What a state keeps for the feed crawler. Methods raise as those of `State`."""

    def __init__(self, state: State) -> None:
        self._database = state.database
        self.sources = SourceStore(state.database)
        self.llmstxt = LlmsTxtStore(state.database)
        self.entries = EntryStore(state.database)
        self.handover = HandoverStore(state.database)
        self.forgetting = ForgetStore(state.database)

    def sync(self, path: str | Path, now: float, **options: Callable[[str], None]) -> SyncedFile:
        """Read a sources file if it has changed; ``now`` is in epoch seconds.

        ``report_progress``, a function, gets a message every few seconds; by default the log does.
        Raises SourcesError for a wrong file.
        """
        return Sync(self._database, path, now, **options).run()

    def file_id(self, path: str | Path) -> int:
        """Return the number of a sources file; 0, which no file has, if it was never read."""
        return Sync(self._database, path, 0.0).file_id()

    def recent_files(self, now: float) -> list[int]:
        """Return the numbers of the sources files that count at ``now``, in epoch seconds."""
        recent = select(files.c.id).where(files.c.read_at > now - FILE_SECONDS)
        return [number for (number,) in self._database.all(recent)]

    def has_read(self, path: str | Path) -> bool:
        """Return True if the state has the sources of a file as it is now. Raises SourcesError."""
        return Sync(self._database, path, 0.0).is_current()

    def declaration(self, synced: SyncedFile, now: float) -> str:
        """Return the name of the copy of what a file declares; it is needed at ``now``."""
        return DeclarationCopies(self._database, synced.id, now).touch(synced.copy)
