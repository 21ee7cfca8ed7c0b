"""What a run hands out: one flat item an entry, held to a closed schema (R6, decision 23)."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final, Self

from itemadapter import ItemAdapter
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from scrapy.exporters import JsonLinesItemExporter, XmlItemExporter

from walsh_scrapy.metadata.entries import Entry, Feed


class InvalidItem(ValueError):
    """An item that may not be kept; the message is one sentence saying which and why."""


class _Keyed:
    """What the state must know of an item and no export shows: exporters see fields only."""

    key: str = ""  #: SHA-256 in hex: the same entry has the same key in every run (decision 19)
    full_key: str = ""  #: the key it has where others share its page; see `metadata.entries`
    page_key: str = ""  #: the key it has, or had when it had a link, alone on its page


@dataclass(kw_only=True)
class EntryItem(_Keyed):
    """One entry of a feed, or one link of an llms.txt, in the columns every export has."""

    kind: str  #: "feed" or "llms"
    source: str  #: the declared URL
    source_title: str | None = None
    url: str | None = None
    title: str | None = None
    id: str | None = None
    published: str | None = None  #: RFC 3339, UTC
    updated: str | None = None  #: RFC 3339, UTC
    authors: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    section: str | None = None
    note: str | None = None
    language: str | None = None
    first_seen: str | None = None  #: RFC 3339, UTC; set when the state has seen the entry

    def exported(self) -> dict[str, object]:
        """Return the columns and their values, as every export has them."""
        return dict(zip(_NAMES, _values(self), strict=True))

    @classmethod
    def of_feed(cls, entry: Entry, *, feed: Feed, source: str, kind: str = "feed") -> Self:
        """Return the item of an entry; `source` is the declared URL, `kind` what it is read as."""
        item = cls(
            kind=kind,
            source=source,
            source_title=feed.title,
            url=entry.url,
            title=entry.title,
            id=entry.id,
            published=entry.published,
            updated=entry.updated,
            authors=list(entry.authors),
            tags=list(entry.tags),
            section=entry.section,
            note=entry.note,
            language=feed.language,
        )
        item.key, item.full_key, item.page_key = entry.key, entry.full_key, entry.page_key
        return item


class JsonLinesExporter(JsonLinesItemExporter):
    """Scrapy's JSON Lines export, in which an entry's columns need not be found out for each one.

    That took a fifth of what reading the entry takes.
    """

    def get_serialized_fields(
        self, item: object, default_value: object = None, include_empty: bool | None = None
    ) -> Iterable[tuple[str, Any]]:
        """Return the names and values to write."""
        if type(item) is EntryItem and self.fields_to_export is None:
            return item.exported().items()
        return super().get_serialized_fields(item, default_value, include_empty)


class XmlExporter(XmlItemExporter):
    """Scrapy's XML export, with an empty element where it would write the word None."""

    def serialize_field(self, field: Mapping[str, Any], name: str, value: object) -> object:
        """Return the text of a field's element."""
        return "" if value is None else super().serialize_field(field, name, value)


def check(item: object) -> None:
    """Accept an item that holds metadata and nothing else; raise InvalidItem for any other.

    jsonschema takes 75 microseconds an item, a third of what reading the entry takes. So its
    verdict is asked only for items that fail the same tests compiled from the same schema.
    """
    if type(item) is EntryItem:
        if all(test(value) for test, value in zip(_TESTS, _values(item), strict=True)):
            return
        values = item.exported()
    elif ItemAdapter.is_item(item):
        values = dict(ItemAdapter(item).asdict())
    else:
        raise InvalidItem(f"A spider returned {type(item).__name__}, which is no item.")
    error = next(_VALIDATOR.iter_errors(values), None)
    if error is not None:
        raise InvalidItem(_sentence(error, values))


def _sentence(error: ValidationError, values: Mapping[str, object]) -> str:
    which = str(values.get("url") or values.get("id") or values.get("title") or "without link")
    start = f"The item {which[:200]!r} of {str(values.get('source'))[:200]!r} is refused:"
    if not error.path:
        odd = sorted(map(str, values.keys() ^ set(_NAMES)))
        return f"{start} its fields must be those of the schema, not more or less ({odd[0]:.80})."
    name = str(error.path[0])
    return f"{start} {name} must be {_SCHEMA['properties'][name]['description']}."


def _compiled(schema: Mapping[str, Any]) -> Callable[[object], bool]:
    """Return a test for one property, from the few keywords our schema uses."""
    unknown = schema.keys() - _KEYWORDS
    if unknown:
        raise ValueError(f"entry.schema.json uses {unknown}, which is not compiled here.")
    if "enum" in schema:
        choices: Iterable[str] = tuple(schema["enum"])
        return lambda value: isinstance(value, str) and value in choices
    if schema["type"] == "array":
        return _compiled_list(_compiled(schema["items"]), schema["maxItems"])
    return _compiled_text(schema)


def _compiled_list(test: Callable[[object], bool], most: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(test, value))


def _compiled_text(schema: Mapping[str, Any]) -> Callable[[object], bool]:
    nullable = "null" in schema["type"]
    shortest, longest = schema.get("minLength", 0), schema["maxLength"]
    search = re.compile(schema.get("pattern", "")).search

    def test(value: object) -> bool:
        if not isinstance(value, str):
            return nullable and value is None
        return shortest <= len(value) <= longest and search(value) is not None

    return test


_KEYWORDS: Final = frozenset(
    {"description", "enum", "type", "maxItems", "items", "minLength", "maxLength", "pattern"}
)
_SCHEMA: Final = json.loads((files("walsh_scrapy") / "entry.schema.json").read_text("utf-8"))
_VALIDATOR: Final = Draft202012Validator(_SCHEMA)
_NAMES: Final = tuple(column.name for column in fields(EntryItem))
_TESTS: Final = tuple(_compiled(_SCHEMA["properties"][name]) for name in _NAMES)
_values: Final = attrgetter(*_NAMES)
