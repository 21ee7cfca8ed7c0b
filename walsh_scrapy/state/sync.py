"""The sync: the state learns what a sources file declares, when the file has changed (decision 40).

    file unchanged (time and size, else SHA-256) -> nothing is read
    file changed -> it is read once, what differs is written, and what it has no more is removed

A file that is wrong is refused, and what was known of it stays. All is written in small
transactions. A sync that breaks off is done again by the next one.
"""

from __future__ import annotations

import json
import logging
import time
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.urls import host_of, url_key
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.sources.loading import (
    Declaration,
    merged,
    read_sources,
    repetitions,
    warn,
)
from walsh_scrapy.sources.stream import stream
from walsh_scrapy.state.declaration import DeclarationCopies
from walsh_scrapy.state.declared import paced_by
from walsh_scrapy.state.declaredfile import WRITTEN_AT_ONCE, DeclaredFile, FileRow, NewSource

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from os import stat_result

    from walsh_scrapy.state.database import Database
    from walsh_scrapy.state.sources import SourceStore

logger = logging.getLogger(__name__)

#: Seconds from one line about a long sync to the next.
_LINE_SECONDS: Final = 5.0
#: Nanoseconds. A file that is younger may change once more and keep its time.
_YOUNG: Final = 2_000_000_000


class Changes(NamedTuple):
    """How many sources a sync found new, changed and removed.

    ``keys`` are those of their URLs; None if nothing was known of the file.
    """

    new: int
    changed: int
    removed: int
    keys: Collection[int] | None = None


class SyncedFile(NamedTuple):
    """A sources file as the state has it."""

    id: int
    pauses: Mapping[str, float]  #: the longest pause of each declared host, in seconds
    copy: str  #: what it declares, as the record keeps it: the name of a copy
    changes: Changes | None  #: None if the file was known as it is


class Sync:
    """Brings what the state has of one file up to date; ``tell`` gets a line while it takes long.

    Methods raise SourcesError.
    """

    def __init__(
        self,
        database: Database,
        records: SourceStore,
        path: str | Path,
        now: float,
        tell: Callable[[str], None] = logger.info,
    ) -> None:
        self._database = database
        self._now = now
        self._tell_operator = tell
        self._file = Path(path)
        self._rows = DeclaredFile(database, records, self._file, now)
        self._unit: Callable[[str], str] = host_of
        self._next_line = time.monotonic() + _LINE_SECONDS

    def run(self) -> SyncedFile:
        """Read what has changed, and warn of what each load of the file warns of."""
        try:
            stat = self._file.stat()
        except (OSError, ValueError):
            read_sources(self._file)  # which says why
            raise
        pace_by = self._database.read(paced_by)
        self._unit = pace_by.unit
        known = self._rows.row()
        changes = None
        if known is None or not known.is_of(stat) or known.pace_by != pace_by:
            known, changes = self._compared(known, stat, pace_by)
        warn(self._file, json.loads(known.warnings))
        return SyncedFile(known.id, json.loads(known.pauses), known.copy, changes)

    def _compared(
        self, known: FileRow | None, stat: stat_result, pace_by: str
    ) -> tuple[FileRow, Changes | None]:
        """Return the row of the file as it is now, and what was changed for it, if anything."""
        digest = self._digest()
        is_young = time.time_ns() - stat.st_mtime_ns < _YOUNG
        values: dict[str, object] = {
            "sha256": digest,
            "mtime_ns": 0 if is_young else stat.st_mtime_ns,
            "size": stat.st_size,
            "pace_by": pace_by,
        }
        changes = None
        if known is None or (known.sha256, known.pace_by) != (digest, pace_by):
            is_edit = known is not None and known.pace_by == pace_by
            changes, warnings = self._read(anew=not is_edit)
            kept = DeclarationCopies(self._database, self._rows.begin(), self._now)
            values["warnings"] = json.dumps(warnings)
            values["pauses"] = json.dumps(self._rows.pauses())
            values["copy"] = kept.kept(known.copy if known else "", changes.keys)
        return self._rows.complete(**values), changes

    def _digest(self) -> str:
        try:
            with self._file.open("rb") as file:
                return file_digest(file, "sha256").hexdigest()
        except OSError:
            read_sources(self._file)
            raise

    def _read(self, *, anew: bool) -> tuple[Changes, list[str]]:
        """Read the file. Return what was changed, and what is to be warned of."""
        try:
            if (found := stream(self._file)) is not None:
                return self._written(found, anew=anew)
        except ValueError:  # it has to be read as a whole, if it can be read
            logger.debug("%s is read as a whole", self._file)
        kept, warnings = read_sources(self._file)
        changes, _ = self._written((Declaration("", source) for source in kept), anew=anew)
        return changes, warnings

    def _written(self, found: Iterable[Declaration], *, anew: bool) -> tuple[Changes, list[str]]:
        """Write the sources of the file, and remove all others of it."""
        keys, new, changed = set[int](), set[int](), set[int]()
        repeated: list[str] = []
        found = iter(found)
        while some := list(islice(found, WRITTEN_AT_ONCE)):
            kept: dict[int, NewSource] = {}
            for place, source in some:
                key = url_key(source.url)
                first = kept.get(key) or (self._rows.find(key) if key in keys else None)
                if first is None:
                    kept[key] = NewSource(key, source)
                else:
                    repeated.append(place)
                    kept[key] = first._replace(source=merged(first.source, source))
            keys.update(kept)
            written = self._rows.write(list(kept.values()), self._unit, anew=anew)
            if not self._rows.is_first:  # then all are new
                new.update(written[0])
                changed.update(written[1])
            self._tell(len(keys))
        if not keys:
            read_sources(self._file)  # which raises: it declares nothing
        removed = [key for key in self._rows.keys() if key not in keys]  # noqa: SIM118 - no dict
        self._rows.remove(removed)
        if new or self._rows.is_first:
            self._rows.follow_moves()
        changes = Changes(len(new), len(changed - new), len(removed), {*new, *changed, *removed})
        if self._rows.is_first:
            changes = Changes(len(keys), 0, 0)
        return changes, repetitions(repeated)

    def _tell(self, done: int) -> None:
        if time.monotonic() >= self._next_line:
            self._tell_operator(f"{self._file}: {count_of(done, 'source')} read so far")
            self._next_line = time.monotonic() + _LINE_SECONDS
