"""Entries as `FEEDS` of a run have them, followed by what only the whole record can say."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import IO, TYPE_CHECKING, Any, Final

from scrapy.utils.conf import feed_complete_default_values_from_settings
from scrapy.utils.misc import load_object

from walsh_scrapy.items import EntryItem
from walsh_scrapy.state import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.exporters import BaseItemExporter
    from scrapy.settings import BaseSettings

    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state.entries import StoredEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedEntry:
    """One entry of the state, with its source as it is declared now."""

    key: str
    item: EntryItem
    source_name: str | None
    source_tags: list[str]
    source_folder: str | None  #: of an OPML file, the outermost first, joined by "/"
    backfill: bool  #: it was there when its source was read for the first time
    also_in: list[str]  #: other sources that had it too, by URL

    @classmethod
    def of(cls, entry: StoredEntry, source: Source | None) -> ExportedEntry:
        """Read a stored entry. Raises StateError if it cannot be read."""
        return cls(
            key=entry.key,
            item=item_of(entry),
            source_name=source.name if source else None,
            source_tags=list(source.tags) if source else [],
            source_folder="/".join(source.folders) or None if source else None,
            backfill=entry.is_backfill,
            also_in=list(entry.also_in),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the columns with their values, in the order of every export."""
        return self.item.to_dict() | {name: getattr(self, name) for name in _ADDED}


_ADDED: Final = tuple(each.name for each in fields(ExportedEntry))[2:]
_OF_ITEM: Final = tuple(column.name for column in fields(EntryItem))
#: The columns of every export.
COLUMNS: Final = (*_OF_ITEM, *_ADDED)


def item_of(entry: StoredEntry) -> EntryItem:
    """Return the item of a stored entry. Raises StateError if it cannot be read.

    Its source is written as the state has it now, so that one source has one URL: it may have been
    rewritten after a move since the entry was found.
    """
    try:
        values: dict[str, Any] = json.loads(entry.item) | {"source": entry.source}
        return EntryItem(**{name: values[name] for name in values if name in _OF_ITEM})
    except (ValueError, TypeError) as error:
        raise StateError(
            f"the entry {entry.key} in the state cannot be read ({error}); put a backup in the "
            "state's place, or remove this entry"
        ) from error


def export_entries(
    entries: Iterable[ExportedEntry], file: IO[bytes], format_name: str, settings: BaseSettings
) -> int:
    """Write entries as a run exports them, with the columns added; return how many there were.

    `FEED_EXPORTERS` and the `FEED_EXPORT_` settings apply as in a run.
    """
    exporter = _exporter(file, format_name, settings)
    count = 0
    exporter.start_exporting()
    for entry in entries:
        exporter.export_item(entry.to_dict())
        count += 1
    exporter.finish_exporting()
    return count


def _exporter(file: IO[bytes], format_name: str, settings: BaseSettings) -> BaseItemExporter:
    options = feed_complete_default_values_from_settings({}, settings)
    exporters = settings.getwithbase("FEED_EXPORTERS")
    exporter: BaseItemExporter = load_object(exporters[format_name])(
        file,
        fields_to_export=options["fields"],
        encoding=options["encoding"],
        indent=options["indent"],
    )
    return exporter
