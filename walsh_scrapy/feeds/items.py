"""The items of a run: one flat item per entry, checked against a closed JSON Schema (R6)."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final, Self

import fastjsonschema
from fastjsonschema import JsonSchemaValueException
from scrapy.exporters import (
    CsvItemExporter,
    JsonLinesItemExporter,
    PythonItemExporter,
    XmlItemExporter,
)

from walsh_scrapy.feeds.metadata.entries import Feed, FeedEntry
from walsh_scrapy.feeds.metadata.text import without_addresses
from walsh_scrapy.policy.entrykeys import EntryKeys

#: Where a spreadsheet program sees the start of a formula, full-width characters included. In some
#: countries it starts a new cell at a semicolon.
_FORMULA: Final = re.compile("(\\A|;)(?=[-=+@\t\r\n\uff1d\uff0b\uff0d\uff20])")


class InvalidItem(ValueError):
    """An item that may not be kept. The message names the item and the wrong field."""


class _Identity:
    """What identifies an entry.

    This is no dataclass field, so exports do not contain it.
    """

    keys: EntryKeys | None = None  #: see `metadata.entries.with_keys`
    is_own: bool = True  #: False if the entry's page is on another host than its source


@dataclass(kw_only=True)
class EntryItem(_Identity):
    """One entry of a feed, or one link of an llms.txt. Every export has the same columns."""

    kind: str  #: "feed" or "llms"
    source: str  #: the declared URL
    source_title: str | None = None
    url: str | None = None  #: absolute, http or https
    title: str | None = None
    id: str | None = None
    published: str | None = None  #: RFC 3339, UTC
    updated: str | None = None  #: RFC 3339, UTC
    authors: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    section: str | None = None  #: the heading above a link in an llms.txt
    note: str | None = None  #: the description after a link in an llms.txt
    language: str | None = None  #: a BCP 47 tag
    first_seen: str | None = None  #: RFC 3339, UTC; None until the state has recorded the entry
    key: str | None = None  #: the key of its row in the state; None until that is written
    changed_at: str | None = None  #: RFC 3339, UTC: when its title changed; None for a new entry

    def to_dict(self) -> dict[str, object]:
        """Return the columns and their values, in the order of the exports."""
        return dict(zip(_NAMES, _values(self), strict=True))

    def to_stored(self) -> dict[str, object]:
        """Return the columns that the state stores as JSON; the others are in their row."""
        values = self.to_dict()
        for name in ("key", "changed_at"):
            del values[name]
        return values

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> Self:
        """Return an item that was stored in the state.

        A field that was added since then gets its default. Raises InvalidItem for an unknown field,
        and if a field without a default is missing.
        """
        try:
            return cls(**values)
        except TypeError:
            raise InvalidItem(_describe_problem([], values)) from None

    @classmethod
    def from_entry(cls, entry: FeedEntry, *, feed: Feed, source: str, kind: str = "feed") -> Self:
        """Return the item for one entry of `feed`.

        `source` is the declared URL, `kind` is "feed" or "llms". `first_seen` stays None until the
        state has recorded the entry.
        """
        item = cls(
            kind=kind,
            source=source,
            source_title=without_addresses(feed.title),
            url=entry.url,
            title=without_addresses(entry.title),
            id=entry.id,
            published=entry.published,
            updated=entry.updated,
            authors=list(entry.authors),
            tags=list(entry.tags),
            section=entry.section,
            note=entry.note,
            language=feed.language,
        )
        item.keys = entry.keys
        item.is_own = entry.is_own
        return item


class JsonLinesExporter(JsonLinesItemExporter):
    """Scrapy's JSON Lines export, faster because the columns of an entry are known.

    Scrapy looks them up for each item, which takes a fifth of the time to parse the entry.
    """

    def get_serialized_fields(
        self, item: object, default_value: object = None, include_empty: bool | None = None
    ) -> Iterable[tuple[str, Any]]:
        """Return the names and values to write."""
        if type(item) is EntryItem and self.fields_to_export is None:
            return item.to_dict().items()
        return super().get_serialized_fields(item, default_value, include_empty)


class CsvExporter(CsvItemExporter):
    """Scrapy's CSV export, with an apostrophe before each text that looks like a formula.

    A spreadsheet program would run a title such as `=HYPERLINK(...)`, with access to other cells.
    """

    def serialize_field(self, field: Mapping[str, Any], name: str, value: object) -> object:
        """Return the text of a field's cell."""
        text = super().serialize_field(field, name, value)
        return _FORMULA.sub(r"\1'", text) if isinstance(text, str) else text


class XmlExporter(XmlItemExporter):
    """Scrapy's XML export, with an empty element where Scrapy writes the word None."""

    def serialize_field(self, field: Mapping[str, Any], name: str, value: object) -> object:
        """Return the text of a field's element."""
        return "" if value is None else super().serialize_field(field, name, value)


def check_item(item: object) -> None:
    """Raise InvalidItem unless an item fits `entry.schema.json` (R6).

    An item does not fit if a field is missing, unknown or has a value that the schema does not
    allow, or if the object is not an item.
    """
    values = _read_columns(item)
    try:
        _check_values(values)
    except JsonSchemaValueException as error:
        raise InvalidItem(_describe_problem(error.path[1:], values)) from None
    for name in _ARRAYS:  # fastjsonschema also accepts a tuple
        if not isinstance(values[name], list):
            raise InvalidItem(_describe_problem([name], values))


def _read_columns(item: object) -> Mapping[str, object]:
    if type(item) is EntryItem:
        return item.to_dict()
    if is_dataclass(item) and not isinstance(item, type):
        return asdict(item)
    if isinstance(item, Mapping):  # scrapy.Item too
        return item
    try:  # attrs and pydantic classes
        columns = PythonItemExporter().export_item(item)
    except TypeError:
        raise InvalidItem(f"The spider yielded {type(item).__name__}, not an item.") from None
    return {str(name): value for name, value in columns.items()}


def _describe_problem(path: list[str], values: Mapping[str, object]) -> str:
    """Return a sentence about the field at ``path``, or, if it is empty, about the fields."""
    title = str(values.get("url") or values.get("id") or values.get("title") or "without link")
    start = f"The item {title[:200]!r} of {str(values.get('source'))[:200]!r} is refused:"
    if not path:
        wrong = sorted(map(str, values.keys() - set(_NAMES)))
        wrong += [name for name in SCHEMA["required"] if name not in values]
        return f"{start} the field {wrong[0]:.80} is unknown or missing."
    return f"{start} {path[0]} must be {_PROPERTIES[path[0]]['description']}."


#: The fields of an item, as JSON Schema.
SCHEMA: Final = json.loads((files("walsh_scrapy") / "entry.schema.json").read_text("utf-8"))
_PROPERTIES: Final = SCHEMA["properties"]
_check_values: Final = fastjsonschema.compile(SCHEMA, use_default=False)
_NAMES: Final = tuple(column.name for column in fields(EntryItem))
_ARRAYS: Final = tuple(name for name in _NAMES if _PROPERTIES[name].get("type") == "array")
_values: Final = attrgetter(*_NAMES)
