"""R6, decision 23: an item is metadata, checked by a closed schema, and every export writes it."""

import copy
import csv
import io
import json
import marshal
import pickle
from dataclasses import fields, replace
from xml.etree import ElementTree as ET

import attr
import pytest
from hypothesis import given
from hypothesis import strategies as st
from itemadapter import ItemAdapter
from jsonschema import Draft202012Validator
from scrapy import exporters

from tests.helpers import cases
from walsh_scrapy.feeds import items
from walsh_scrapy.feeds.items import (
    CsvExporter,
    EntryItem,
    InvalidItem,
    JsonLinesExporter,
    XmlExporter,
    check_item,
)
from walsh_scrapy.feeds.metadata.entries import Feed, FeedEntry
from walsh_scrapy.policy.entrykeys import EntryKeys

COLUMNS = [
    *("kind", "source", "source_title", "url", "title", "id", "published", "updated"),
    *("authors", "tags", "section", "note", "language", "first_seen", "key", "changed_at"),
]
KEYS = EntryKeys("k" * 64, "f" * 64, "t" * 64)
GOOD = EntryItem(
    kind="feed",
    source="https://blog.example/feed",
    source_title="Blog",
    url="https://blog.example/1#p3",
    title="One, “two”\u2028& <three>",
    id="urn:1",
    published="2026-05-23T00:00:00Z",
    authors=["Jo", "Ann, Jr."],
    tags=["a"],
    first_seen="2026-05-24T00:00:00Z",
)
BARE = EntryItem(kind="llms", source="https://a.example/", first_seen="2026-05-24T00:00:00Z")
TIMES = ("published", "updated", "first_seen", "changed_at")


def good(**changes):
    return replace(GOOD, **changes)


def export(exporter_class, *exported, **options):
    file = io.BytesIO()
    exporter = exporter_class(file, **options)
    exporter.start_exporting()
    for item in exported:
        exporter.export_item(item)
    exporter.finish_exporting()
    return file.getvalue()


# --- the schema


def test_the_schema_is_sound_closed_and_knows_every_column():
    Draft202012Validator.check_schema(items.SCHEMA)
    assert items.SCHEMA["additionalProperties"] is False
    assert (
        [*items.SCHEMA["required"], "key", "changed_at"]
        == list(items.SCHEMA["properties"])
        == COLUMNS
    )
    assert [column.name for column in fields(EntryItem)] == COLUMNS


@pytest.mark.parametrize("item", [GOOD, BARE, good(note="n" * 500, section="s", language="en")])
def test_metadata_is_accepted(item):
    check_item(item)
    check_item(ItemAdapter(item).asdict())


TOO_LONG = {
    "title": 301,
    "source_title": 301,
    "section": 301,
    "note": 501,
    "id": 4097,
    "language": 65,
}


@cases(
    "changes",
    more=[
        *({name: None} for name in ("kind", "source", "authors", "first_seen")),
        *({name: "x" * length} for name, length in TOO_LONG.items()),
        {"url": "https://blog.example/" + "x" * 4096},
        {"authors": [None]},
        {"authors": ["x" * 301]},
        {"authors": ["x"] * 101},
        {"tags": ("a",)},
        {"tags": ["x" * 101]},
    ],
)
def test_a_value_outside_the_schema_is_refused_with_a_sentence(changes):
    (name,) = changes
    with pytest.raises(InvalidItem, match=rf"is refused: {name} must be .*\.$") as caught:
        check_item(good(**changes))
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", TIMES)
@cases("time")
def test_times_are_rfc_3339_in_utc(name, time):
    with pytest.raises(InvalidItem, match=f"{name} must be a time"):
        check_item(good(**{name: time}))


@pytest.mark.parametrize("name", ["body", "summary", "content", "description", "page_key", 5])
def test_no_other_field_exists(name):
    with pytest.raises(InvalidItem, match="field "):
        check_item(ItemAdapter(GOOD).asdict() | {name: "x"})
    assert not hasattr(EntryItem, "body")


def test_an_item_of_attrs_is_checked_as_any_other():
    made = attr.make_class("Entry", COLUMNS)
    check_item(made(**GOOD.to_dict()))
    with pytest.raises(InvalidItem, match="kind"):
        check_item(made(**GOOD.to_dict() | {"kind": "page"}))


def test_a_missing_field_and_objects_that_are_no_items():
    columns = ItemAdapter(GOOD).asdict()
    del columns["note"]
    with pytest.raises(InvalidItem, match="note"):
        check_item(columns)
    for thing in (None, "text", 5, [GOOD], b""):
        with pytest.raises(InvalidItem, match="not an item"):
            check_item(thing)


def test_a_stored_item_has_the_default_of_a_field_that_is_newer():
    stored = ItemAdapter(GOOD).asdict()
    assert EntryItem.from_stored({**stored, "note": "n"}) == good(note="n")
    del stored["note"], stored["authors"]
    assert EntryItem.from_stored(stored) == good(authors=[])
    for odd, values in (("body", {**stored, "body": "All of it"}), ("kind", {"source": "x"})):
        with pytest.raises(InvalidItem, match=f"field {odd}"):
            EntryItem.from_stored(values)


STRINGS = (
    st.text(st.characters(exclude_categories=()), max_size=6)  # lone surrogates as well
    | st.sampled_from(["feed", "llms", "https://a.example/", "2026-05-23T00:00:00Z", "x" * 501])
    | st.sampled_from(["\U0001f600" * 300, "\U0001f600" * 301, "\U0001f600" * 4097])
    | st.from_regex(r"https?://[^\s]{0,5}\s?")
    | st.from_regex(r"https?://[^/?#]{0,5}")
    | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n?")
    | st.text(max_size=3).map(type("Subclass", (str,), {}))
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=3) | STRINGS
VALUES = SCALARS | st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(STRINGS | st.integers(), inner, max_size=2)
    ),
    max_leaves=4,
)
LISTS = (
    st.lists(STRINGS, max_size=3)
    | st.integers(99, 102).map(lambda length: ["x"] * length)
    | st.integers(299, 302).map(lambda length: ["x" * length])
)


def is_refused(thing):
    try:
        check_item(thing)
    except InvalidItem:
        return True
    return False


VALIDATOR = Draft202012Validator(items.SCHEMA)


@given(st.dictionaries(st.sampled_from(COLUMNS), VALUES | LISTS))
def test_the_compiled_schema_and_jsonschema_always_agree(changes):
    item = good(**changes)
    values = {name: getattr(item, name) for name in COLUMNS}
    is_valid = VALIDATOR.is_valid(values)
    assert is_refused(item) is is_refused(values) is not is_valid


@given(
    st.dictionaries(st.sampled_from([*COLUMNS, "body"]) | st.integers() | STRINGS, VALUES),
    st.sets(st.sampled_from(COLUMNS)),
)
def test_they_agree_on_unknown_and_missing_fields(more, missing):
    columns = ItemAdapter(GOOD).asdict() | more
    values = {name: value for name, value in columns.items() if name not in missing}
    is_valid = VALIDATOR.is_valid(values)
    assert is_refused(values) is not is_valid


def test_the_schema_has_only_keywords_that_the_compiler_knows():
    # fastjsonschema knows draft 2019-09: it passes over what only 2020-12 has.
    names = set(items.SCHEMA)
    for rule in items.SCHEMA["properties"].values():
        names |= rule.keys() | rule.get("items", {}).keys()
    assert names == {
        *("$schema", "$id", "title", "description", "type", "enum", "pattern", "minLength"),
        *("maxLength", "maxItems", "items", "properties", "required", "additionalProperties"),
    }


# --- from a feed


def test_an_item_of_a_feed_carries_its_keys_beside_its_columns():
    entry = FeedEntry("https://a.example/1", "A", "1", None, None, ("Jo",), ("t",), KEYS)
    item = EntryItem.from_entry(
        entry, feed=Feed("Blog", "en", (entry,)), source="https://a.example/"
    )
    assert (item.keys, item.key) == (KEYS, None)
    assert list(ItemAdapter(item).asdict()) == COLUMNS
    assert (item.kind, item.source_title, item.language) == ("feed", "Blog", "en")
    assert (item.authors, item.tags) == (["Jo"], ["t"])
    check_item(replace(item, first_seen="2026-05-24T00:00:00Z"))
    for twin in (copy.copy(item), copy.deepcopy(item), pickle.loads(pickle.dumps(item))):
        assert (twin, twin.keys) == (item, KEYS)


# --- exports


def test_json_lines():
    first, second = map(
        json.loads, export(exporters.JsonLinesItemExporter, GOOD, BARE).splitlines()
    )
    assert list(first) == list(second) == COLUMNS
    assert first == ItemAdapter(GOOD).asdict()
    assert (second["url"], second["published"], second["authors"]) == (None, None, [])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"encoding": "utf-8"},
        {"encoding": "latin-1", "ensure_ascii": True},
        {"fields_to_export": ["title", "url"]},
        {"fields_to_export": {"title": "name"}, "export_empty_fields": True},
    ],
)
def test_our_json_lines_are_scrapys(options):
    items = (GOOD, BARE, {"of": "a spider of others"})
    ours = export(JsonLinesExporter, *items, **options)
    assert ours == export(exporters.JsonLinesItemExporter, *items, **options)
    assert len(ours.splitlines()) == 3


def test_json():
    assert json.loads(export(exporters.JsonItemExporter, GOOD))[0] == ItemAdapter(GOOD).asdict()


def test_csv():
    text = export(exporters.CsvItemExporter, BARE, GOOD).decode()
    bare, row = csv.DictReader(io.StringIO(text))
    assert list(row) == COLUMNS
    assert (row["url"], row["title"], row["tags"]) == (GOOD.url, GOOD.title, "a")
    assert row["authors"] == "Jo,Ann, Jr."
    assert (bare["title"], bare["authors"], bare["kind"]) == ("", "", "llms")


def test_xml():
    first, second = ET.fromstring(export(XmlExporter, GOOD, BARE))
    assert [column.tag for column in first] == COLUMNS
    assert first.findtext("title") == GOOD.title
    assert [author.text for author in first.find("authors")] == GOOD.authors
    assert second.findtext("title") == second.findtext("published") == ""


def test_pickle_and_marshal():
    assert pickle.loads(export(exporters.PickleItemExporter, GOOD)) == ItemAdapter(GOOD).asdict()
    assert marshal.loads(export(exporters.MarshalItemExporter, GOOD)) == ItemAdapter(GOOD).asdict()


def test_no_cell_of_a_csv_export_is_a_formula():
    formulas = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1"]
    others = ["", "1=1", "'=1", "a\n=1", "a; b"]
    items = [EntryItem(kind="feed", source="x", title=title) for title in formulas + others]
    items.append(EntryItem(kind="feed", source="x", title=";=cmd;a;-1", authors=["=cmd()", "b"]))
    rows = list(csv.DictReader(io.StringIO(export(CsvExporter, *items).decode(), newline="")))
    expected = [*(f"'{text}" for text in formulas), *others, ";'=cmd;a;'-1"]
    assert [row["title"] for row in rows] == expected
    assert rows[-1]["authors"] == "'=cmd(),b"
    assert json.loads(export(JsonLinesExporter, items[0]))["title"] == "=1+1"
