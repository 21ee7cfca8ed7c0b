"""The items of a run: one flat item for each entry, checked by a closed schema (R6)."""

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

from walsh_scrapy.metadata.entries import Feed, FeedEntry
from walsh_scrapy.metadata.text import without_addresses

#: Where a spreadsheet sees the beginning of a formula, also as a full-width character. Those of
#: some countries begin a new cell at a semicolon.
_FORMULA: Final = re.compile("(\\A|;)(?=[-=+@\t\r\n\uff1d\uff0b\uff0d\uff20])")


class InvalidItem(ValueError):
    """An item that must not be kept. The message is one sentence with the item and the reason."""


class _Keyed:
    """The keys of an entry, for the state. They are not dataclass fields, so no export has them."""

    key: str = ""  #: of its page and its id; see `metadata.entries.with_keys`
    page_key: str = ""
    title_key: str | None = None  #: of its page and its title
    is_own: bool = True  #: False if its page is on another host than its source


@dataclass(kw_only=True)
class EntryItem(_Keyed):
    """One entry of a feed, or one link of an llms.txt, with the same columns in every export."""

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
    section: str | None = None  #: of a link in an llms.txt: the heading above it
    note: str | None = None  #: of a link in an llms.txt: the description after it
    language: str | None = None  #: a BCP 47 tag
    first_seen: str | None = None  #: RFC 3339, UTC; None until the state has recorded the entry

    def to_dict(self) -> dict[str, object]:
        """Return the columns with their values, in the order of every export."""
        return dict(zip(_NAMES, _values(self), strict=True))

    @classmethod
    def of_stored(cls, values: Mapping[str, Any]) -> Self:
        """Return the item that the state has: a field that is newer than it has its default.

        Raises InvalidItem for a field that no item has, and if one without a default is missing.
        """
        try:
            return cls(**values)
        except TypeError:
            raise InvalidItem(_sentence([], values)) from None

    @classmethod
    def of_feed(cls, entry: FeedEntry, *, feed: Feed, source: str, kind: str = "feed") -> Self:
        """Return the item of one entry of `feed`.

        `source` is the declared URL, `kind` is "feed" or "llms". `first_seen` is left None.
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
        item.key, item.page_key, item.title_key = entry.key, entry.page_key, entry.title_key
        item.is_own = entry.is_own
        return item


class JsonLinesExporter(JsonLinesItemExporter):
    """Scrapy's JSON Lines export, faster for entries because their columns are known in advance.

    Finding the columns of an item takes a fifth of the time that parsing its entry takes.
    """

    def get_serialized_fields(
        self, item: object, default_value: object = None, include_empty: bool | None = None
    ) -> Iterable[tuple[str, Any]]:
        """Return the names and values to write."""
        if type(item) is EntryItem and self.fields_to_export is None:
            return item.to_dict().items()
        return super().get_serialized_fields(item, default_value, include_empty)


class CsvExporter(CsvItemExporter):
    """Scrapy's CSV export, with an apostrophe before a text that a spreadsheet would compute.

    A title such as `=HYPERLINK(...)` would be a formula there, with access to the other cells.
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


def check(item: object) -> None:
    """Check an item against `entry.schema.json` (R6, decision 23).

    Raises InvalidItem if a field is missing, unknown or has a value that the schema does not allow,
    and if the object is not an item.
    """
    values = _columns(item)
    try:
        _check_values(values)
    except JsonSchemaValueException as error:
        raise InvalidItem(_sentence(error.path[1:], values)) from None
    for name in _ARRAYS:  # fastjsonschema takes a tuple for an array
        if not isinstance(values[name], list):
            raise InvalidItem(_sentence([name], values))


def _columns(item: object) -> Mapping[str, object]:
    if type(item) is EntryItem:
        return item.to_dict()
    if is_dataclass(item) and not isinstance(item, type):
        return asdict(item)
    if isinstance(item, Mapping):  # an Item of Scrapy is one too
        return item
    try:  # classes of attrs and of pydantic
        columns = PythonItemExporter().export_item(item)
    except TypeError:
        raise InvalidItem(f"A spider returned {type(item).__name__}, not an item.") from None
    return {str(name): value for name, value in columns.items()}


def _sentence(path: list[str], values: Mapping[str, object]) -> str:
    which = str(values.get("url") or values.get("id") or values.get("title") or "without link")
    start = f"The item {which[:200]!r} of {str(values.get('source'))[:200]!r} is refused:"
    if not path:
        odd = sorted(map(str, values.keys() - set(_NAMES)))
        odd += [name for name in _NAMES if name not in values]
        return f"{start} its fields must be those of the schema, not more or less ({odd[0]:.80})."
    return f"{start} {path[0]} must be {_PROPERTIES[path[0]]['description']}."


#: The fields of an item, as JSON Schema.
SCHEMA: Final = json.loads((files("walsh_scrapy") / "entry.schema.json").read_text("utf-8"))
_PROPERTIES: Final = SCHEMA["properties"]
_check_values: Final = fastjsonschema.compile(SCHEMA, use_default=False)
_NAMES: Final = tuple(column.name for column in fields(EntryItem))
_ARRAYS: Final = tuple(name for name in _NAMES if _PROPERTIES[name].get("type") == "array")
_values: Final = attrgetter(*_NAMES)
