"""Which items of a document are kept: those of the schema, and as many as there is room for."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from walsh_scrapy.items import InvalidItem, check
from walsh_scrapy.metadata.entries import KnownEntries
from walsh_scrapy.policy.wording import and_more
from walsh_scrapy.state.entries import EntryRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.items import EntryItem

logger = logging.getLogger(__name__)

#: Bytes that one document may add to the state, as JSON (decision 34).
MOST_BYTES: Final = 8 * 1024 * 1024
#: Refused items of one document that are logged; further ones are counted.
MOST_LOGGED: Final = 3

_as_json = json.JSONEncoder(ensure_ascii=False).encode  # made once: json.dumps makes one an item


class DocumentItems:
    """The items of one document: those that are refused, and those that are kept."""

    def __init__(self, url: str, seen: str | None = None) -> None:
        self.valid: dict[str, EntryItem] = {}  #: by key
        self._known = KnownEntries()  # an entry may be twice in one document
        self._url = url
        self._seen = seen
        self._refused = 0

    def add(self, item: EntryItem) -> None:
        """Keep an item, first seen now, if it may be kept."""
        item.first_seen = self._seen
        if self.passes(item) and self._known.adds(item.page_key, item.key, item.title_key):
            self.valid[item.key] = item

    def passes(self, item: object) -> bool:
        """Return True if an item may be kept (R6, decision 23); log the first that may not."""
        try:
            check(item)
        except InvalidItem as error:
            self._refused += 1
            if self._refused <= MOST_LOGGED:
                logger.warning("an item is left out: %s", error)
            return False
        return True

    def log_rest(self) -> None:
        """Log how many items were refused beside those that were logged."""
        if self._refused > MOST_LOGGED:
            more = and_more(self._refused - MOST_LOGGED)
            logger.warning("items of %s are left out: %s", self._url, more)

    def records(self, source_url: str, now: float, run: int | None) -> Iterator[EntryRecord]:
        """Yield the records of the valid items, newest first, as far as they fit in `MOST_BYTES`.

        Items without a date count as the oldest.
        """
        room = MOST_BYTES
        for item in sorted(self.valid.values(), key=_date, reverse=True):
            record = _record(item, source_url, now, run)
            room -= len(record.item.encode())
            if room < 0:
                return
            yield record


def _date(item: EntryItem) -> str:
    return item.published or item.updated or ""


def _record(item: EntryItem, source_url: str, now: float, run: int | None) -> EntryRecord:
    return EntryRecord(
        key=item.key,
        page_key=item.page_key,
        title_key=item.title_key,
        source=source_url,
        kind=item.kind,
        first_seen=now,
        item=_as_json(item.to_dict()),
        run=run,
    )
