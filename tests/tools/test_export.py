"""Exports: OPML is the sources that were declared, and entries are what runs exported."""

import contextlib
import io
import json
from dataclasses import fields, replace
from datetime import timedelta
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings

from tests.helpers.records import commit, entry_of
from walsh_scrapy.items import EntryItem
from walsh_scrapy.sources.loading import _read_opml, _source_of, load_sources
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.tools.export import Export, write_opml

URL = "http://a.example/feed"
OTHER = "http://b.example/"


def test_sources_exported_as_opml_are_read_back_unchanged(tmp_path):
    sources = [
        Source(URL, name='Tom & "Jerry" <x>\x00', tags=("a", "b c")),
        Source("http://a.example/?q=1&r=<2>", kind="llms", page="http://a.example/"),
        Source("http://a.example/odd", name="Odd", tags=("a, b", "/c/")),
    ]
    file = tmp_path / "sources.opml"
    with file.open("wb") as opened:
        assert write_opml(sources, opened, lambda _url: None) == 3
    first, second, third = load_sources(file)
    assert (first.url, first.name, first.tags) == (URL, 'Tom & "Jerry" <x>', ("a", "b c"))
    assert (second.kind, second.page) == ("llms", "http://a.example/")
    assert second.url == "http://a.example/?q=1&r=%3C2%3E"
    assert (third.tags, third.name) == (("a, b", "/c/"), "Odd")


TEXT = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=9)
LENGTHS = st.timedeltas(timedelta(microseconds=1), timedelta(hours=12))


@given(
    st.builds(
        Source,
        st.integers(0, 9).map(lambda number: f"http://a.example/{number}?a=1&b=2"),
        st.sampled_from(["feed", "llms"]),
        name=TEXT,
        tags=st.lists(TEXT, unique=True).map(tuple),
        every=st.none() | LENGTHS,
        pause=st.none() | LENGTHS,
    ),
    st.booleans(),
)
def test_whatever_is_declared_is_read_back(source, is_broken):
    written = io.BytesIO()
    write_opml([source], written, lambda _url: None)
    body = written.getvalue()
    if is_broken:  # then it is read as HTML
        body = body.replace(b"</head>", b"")
    (found,) = _read_opml(BytesIO(body), [])
    ours = replace(_source_of(found), folders=())
    assert (ours.url, ours.kind, ours.every, ours.pause) == (
        source.url, source.kind, source.every, source.pause,
    )  # fmt: skip
    if not is_broken:
        assert (ours.name, set(ours.tags)) == (source.name, set(source.tags))


OPML = """<opml><body>
<outline text="News, all"><outline text="World">
<outline text="A" xmlUrl="http://a.example/feed" category="x,World"/>
<outline text="B" xmlUrl="http://b.example/"/></outline>
<outline text="C" xmlUrl="http://c.example/"/></outline>
<outline text="D" xmlUrl="http://d.example/" category="News"/>
</body></opml>"""


def test_folders_are_exported_as_folders_and_each_is_opened_once(tmp_path):
    theirs, ours = tmp_path / "theirs.opml", tmp_path / "ours.opml"
    theirs.write_text(OPML)
    sources = load_sources(theirs)
    with ours.open("wb") as opened:
        write_opml(sources, opened, lambda _url: None)
    assert load_sources(ours) == sources
    assert [(source.folders, source.tags) for source in sources] == [
        (("News, all", "World"), ("News, all", "World", "x")),
        (("News, all", "World"), ("News, all", "World")),
        (("News, all",), ("News, all",)),
        ((), ("News",)),
    ]
    written = ours.read_text()
    assert written.count('<outline text="') == 2
    assert written.count("<outline") - written.count("/>") == written.count("</outline>") == 2


def entry(key, source, **fields):
    item = EntryItem(kind="feed", source=source, first_seen="2026-05-23T06:00:00Z", **fields)
    return entry_of(source, key, at=1779516000.0, item=json.dumps(item.to_dict()))


EXPORT = Export(settings=Settings(), sources_file="none.toml")


@pytest.fixture
def state(url):
    """A state with two entries of one source, and none of another."""
    found = [
        entry("1", URL, title="=1+1 'x' \U0001f600", authors=["Jo", "Ü"], source_title="The A"),
        entry("2", URL, url="http://a.example/2"),
    ]
    with contextlib.closing(State(url)) as state:
        commit(state, SourceRecord(url=URL, kind="feed", fetched_at=1779516000.0), found)
        commit(state, SourceRecord(url=OTHER, kind="llms", outcome="failed", failures=2))
        yield state


def exported(state, **options):
    written = io.BytesIO()
    replace(EXPORT, **options).write_entries(written, "jsonl", state)
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_each_entry_has_the_name_tags_and_folder_of_its_source(state, tmp_path):
    (tmp_path / "s.opml").write_text(OPML)
    (first, _) = exported(state, sources_file=str(tmp_path / "s.opml"))
    added = ("source_name", "source_tags", "source_folder", "backfill", "also_in")
    assert tuple(first) == (*(each.name for each in fields(EntryItem)), *added)
    assert (first["source_name"], first["source_tags"], first["source_folder"]) == (
        "A", ["News, all", "World", "x"], "News, all/World",
    )  # fmt: skip
    assert {each["source_name"] for each in exported(state)} == {None}, "without a sources file"


def test_what_the_first_reading_of_a_source_had_is_marked_and_can_be_left_out(url):
    known = SourceRecord(url=URL, kind="feed", outcome="failed", failures=1)
    read = replace(known, outcome="fetched", format="rss20", failures=0)
    with contextlib.closing(State(url)) as state:
        commit(state, known)
        commit(state, read, [entry("1", URL, title="there")])
        commit(state, read, [entry("1", URL), entry("2", URL, title="new")])
        commit(state, replace(read, url=OTHER), [entry("3", OTHER, title="of another")])
        marks = {each["title"]: each["backfill"] for each in exported(state)}
        assert marks == {"there": True, "new": False, "of another": True}
        assert [each["title"] for each in exported(state, has_backfill=False)] == ["new"]


def test_an_entry_of_two_sources_is_one_and_says_so(url):
    def found(source, *titles):
        return [
            replace(entry(f"{source} {title}", source, title=title), page_key="p", title_key=title)
            for title in titles
        ]

    third = "http://c.example/feed"
    with contextlib.closing(State(url)) as state:
        for source, titles in ((URL, "xy"), (OTHER, "y"), (third, "x"), (OTHER, "yy"), (URL, "x")):
            commit(state, SourceRecord(url=source, kind="feed"), found(source, *titles))
        also = {each["title"]: each["also_in"] for each in exported(state)}
        assert also == {"x": [third], "y": [OTHER]}
        assert [each["title"] for each in exported(state, urls=(OTHER,))] == ["y"]


def test_a_source_with_a_new_spelling_has_one_url_in_an_export(url):
    with contextlib.closing(State(url)) as state:
        commit(state, SourceRecord(url=URL, kind="feed"), [entry("1", URL, title="old")])
        spelled = f"{URL}/"
        commit(state, SourceRecord(url=spelled, kind="feed"), [entry("2", spelled, title="new")])
        assert {each["source"] for each in exported(state)} == {spelled}
