"""Which items of a document are kept: those of the schema, and as many as there is room for."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from walsh_scrapy.items import InvalidItem, check
from walsh_scrapy.policy.wording import and_more
from walsh_scrapy.state.entries import EntryRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.items import EntryItem

logger = logging.getLogger(__name__)

#: Bytes that one document may add to the state, as JSON (decision 34).
MOST_BYTES: Final = 8 * 1024 * 1024
#: Refused items of one document that are logged; further ones are counted.
MOST_LOGGED: Final = 3

_as_json = json.JSONEncoder(ensure_ascii=False).encode  # made once: json.dumps makes one an item


class Refused:
    """The refused items of one document: the first are logged, the others counted."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._number = 0

    def passes(self, item: object) -> bool:
        """Return True if an item may be kept (R6, decision 23)."""
        try:
            check(item)
        except InvalidItem as error:
            self._number += 1
            if self._number <= MOST_LOGGED:
                logger.warning("an item is left out: %s", error)
            return False
        return True

    def log_rest(self) -> None:
        """Log how many items were refused beside those that were logged."""
        if self._number > MOST_LOGGED:
            more = and_more(self._number - MOST_LOGGED)
            logger.warning("items of %s are left out: %s", self._url, more)


def valid_items(found: Iterable[EntryItem], seen: str | None, url: str) -> dict[str, EntryItem]:
    """Return a document's valid items by key, first seen now; log what is left out."""
    valid: dict[str, EntryItem] = {}
    refused = Refused(url)
    for item in found:
        item.first_seen = seen
        if refused.passes(item):
            valid.setdefault(item.key, item)  # an entry may be twice in one document
    refused.log_rest()
    return valid


def records_of(items: Iterable[EntryItem], source_url: str, now: float) -> list[EntryRecord]:
    """Return the records of a document's items, or of the newest that fit into `MOST_BYTES`.

    Items without a date count as the oldest.
    """
    given = list(items)
    records = _records_that_fit(given, source_url, now)
    if len(records) < len(given):
        given.sort(key=lambda item: item.published or item.updated or "", reverse=True)
        records = _records_that_fit(given, source_url, now)
    return records


def _records_that_fit(items: Iterable[EntryItem], source_url: str, now: float) -> list[EntryRecord]:
    records, room = list[EntryRecord](), MOST_BYTES
    for item in items:
        record = _record(item, source_url, now)
        room -= len(record.item.encode())
        if room < 0:
            break
        records.append(record)
    return records


def _record(item: EntryItem, source_url: str, now: float) -> EntryRecord:
    return EntryRecord(
        key=item.key,
        full_key=item.full_key,
        page_key=item.page_key,
        source=source_url,
        kind=item.kind,
        first_seen=now,
        item=_as_json(item.exported()),
    )
