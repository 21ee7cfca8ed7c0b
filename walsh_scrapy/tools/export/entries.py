"""Entries of the state as JSON, CSV or XML, by the exporters of a run (decision 18)."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import IO, TYPE_CHECKING, Any, Final

from scrapy.utils.conf import feed_complete_default_values_from_settings
from scrapy.utils.misc import load_object

from walsh_scrapy.items import EntryItem
from walsh_scrapy.state import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.exporters import BaseItemExporter
    from scrapy.settings import BaseSettings

    from walsh_scrapy.state.entries import StoredEntry

#: The format for each ending of a file name; "opml" lists sources, the others hold entries, and
#: "sqlite" both.
FORMATS: Final = {
    ".jsonl": "jsonl",
    ".jl": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".xml": "xml",
    ".opml": "opml",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
}
_COLUMNS: Final = frozenset(column.name for column in fields(EntryItem))


def export_entries(
    entries: Iterable[StoredEntry], file: IO[bytes], format_name: str, settings: BaseSettings
) -> int:
    """Write entries as a run exports them, and return how many there were.

    `FEED_EXPORTERS` and the `FEED_EXPORT_` settings apply as in a run. Raises StateError for an
    entry that cannot be read.
    """
    exporter = _exporter(file, format_name, settings)
    count = 0
    exporter.start_exporting()
    for entry in entries:
        exporter.export_item(item_of(entry))
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


def item_of(entry: StoredEntry) -> EntryItem:
    """Return the item of a stored entry. Raises StateError if it cannot be read."""
    try:
        values: dict[str, Any] = json.loads(entry.item)
        return EntryItem(**{name: values[name] for name in values if name in _COLUMNS})
    except (ValueError, TypeError) as error:
        raise StateError(
            f"the entry {entry.key} in the state cannot be read ({error}); put a backup in the "
            "state's place, or remove this entry"
        ) from error
