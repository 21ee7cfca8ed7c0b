"""Exports: OPML is the sources that were declared, and entries are what runs exported."""

import contextlib
import csv
import io
import json
import sqlite3
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings

from tests.helpers.records import commit, entry_of
from tests.helpers.sites import feed, rows_of, site
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.sources.loading import _build_source, _read_opml, load_sources
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.policy.entrykeys import EntryKeys
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.feeds import Post, atom
from walsh_scrapy.testing.web import Reply
from walsh_scrapy.tools.export import Export, write_opml

URL = "http://a.example/feed"
OTHER = "http://b.example/"


def test_sources_exported_as_opml_are_read_back_unchanged(tmp_path):
    sources = [
        Source(URL, name='Tom & "Jerry" <x>\x00\x1b\u202e\ud800', tags=("a", "b c")),
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
        delay=st.none() | LENGTHS,
    ),
    st.booleans(),
)
def test_any_declared_sources_are_read_back(source, is_broken):
    written = io.BytesIO()
    write_opml([source], written, lambda _url: None)
    body = written.getvalue()
    if is_broken:  # then it is read as HTML
        body = body.replace(b"</head>", b"")
    (raw_source,) = _read_opml(BytesIO(body), [])
    ours = replace(_build_source(raw_source), folders=())
    assert (ours.url, ours.kind, ours.every, ours.delay) == (
        source.url, source.kind, source.every, source.delay,
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
COLUMNS = [field.name for field in fields(EntryItem)]
ADDED = ("source_name", "source_tags", "source_folder", "backfill", "also_in", "previous_title")


@pytest.fixture
def state(url):
    """A state with two entries of one source, and none of another."""
    entries = [
        entry("1", URL, title="=1+1 'x' \U0001f600", authors=["Jo", "Ü"], source_title="The A"),
        entry("2", URL, url="http://a.example/2"),
    ]
    with contextlib.closing(State(url)) as state:
        commit(state, SourceRecord(url=URL, kind="feed", visited_at=1779516000.0), entries)
        commit(state, SourceRecord(url=OTHER, kind="llms", outcome="failed", failures=2))
        yield state


def exported(state, **options):
    written = io.BytesIO()
    replace(EXPORT, **options).write_entries(written, "jsonl", state)
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_each_entry_has_the_name_tags_and_folder_of_its_source(state, tmp_path):
    (tmp_path / "s.opml").write_text(OPML)
    (first, _) = exported(state, sources_file=str(tmp_path / "s.opml"))
    assert list(first) == [*COLUMNS, *ADDED]
    assert (first["source_name"], first["source_tags"], first["source_folder"]) == (
        "A", ["News, all", "World", "x"], "News, all/World",
    )  # fmt: skip
    assert {row["source_name"] for row in exported(state)} == {None}, "there is no sources file"


def test_entries_of_the_first_visit_are_marked_as_backfill(url):
    known = SourceRecord(url=URL, kind="feed", outcome="failed", failures=1)
    read = replace(known, outcome="fetched", format="rss20", failures=0)
    with contextlib.closing(State(url)) as state:
        commit(state, known)
        commit(state, read, [entry("1", URL, title="there")])
        commit(state, read, [entry("1", URL), entry("2", URL, title="new")])
        commit(state, replace(read, url=OTHER), [entry("3", OTHER, title="of another")])
        marks = {row["title"]: row["backfill"] for row in exported(state)}
        assert marks == {"there": True, "new": False, "of another": True}
        assert [row["title"] for row in exported(state, has_backfill=False)] == ["new"]


def test_an_entry_of_two_sources_is_one_and_says_so(url):
    def found(source, *titles):
        return [
            replace(entry(title, source, title=title), keys=EntryKeys("p", title=title))
            for title in titles
        ]

    third = "http://c.example/feed"
    with contextlib.closing(State(url)) as state:
        for source, titles in ((URL, "xy"), (OTHER, "y"), (third, "x"), (OTHER, "yy"), (URL, "x")):
            commit(state, SourceRecord(url=source, kind="feed"), found(source, *titles))
        also = {row["title"]: row["also_in"] for row in exported(state)}
        assert also == {"x": [third], "y": [OTHER]}
        assert [row["title"] for row in exported(state, urls=(OTHER,))] == ["y"]


def test_a_source_with_a_new_spelling_has_one_url_in_an_export(url):
    with contextlib.closing(State(url)) as state:
        commit(state, SourceRecord(url=URL, kind="feed"), [entry("1", URL, title="old")])
        spelled = f"{URL}/"
        commit(state, SourceRecord(url=spelled, kind="feed"), [entry("2", spelled, title="new")])
        assert {row["source"] for row in exported(state)} == {spelled}


# `walsh export`: what runs exported, whole or not at all, also beside a crawl.

POSTS = ["Plain", 'Quoted "x", and; comma', "ü \U0001f600 <b>&amp;</b>", "=1+1", "\u2028 line"]
SOURCES = [
    {"url": "http://blog.example/feed", "name": "Blog & more", "tags": ["a", "b"]},
    {"url": "http://other.example/feed"},
]
FORMATS = ("jsonl", "json", "csv")


@pytest.fixture
def export(tmp_path, on_state):
    """Run `walsh export` on the state that the crawls of this test share."""

    def run(*arguments, **settings):
        file = write_sources(tmp_path / "sources.toml", SOURCES)
        test_settings = {"WALSH_SOURCES": file} | settings
        return on_state("export", *arguments, settings=test_settings, encoding=None)

    return run


@pytest.fixture
def web(loopback_web):
    other = atom("Other", [Post("Ä", "http://other.example/ä")], "http://other.example/")
    return loopback_web(
        site("blog.example", feed=feed(posts=POSTS)),
        site("other.example", feed=Reply(other, content_type="application/atom+xml")),
    )


def read(file, ending):
    """The rows of an export, sorted."""
    text = file.read_text("utf-8")
    if ending == "json":
        items = json.loads(text)
    elif ending == "csv":
        items = list(csv.DictReader(text.splitlines(keepends=True)))
    else:
        items = [json.loads(line) for line in text.split("\n")[:-1]]
    return sorted(items, key=lambda item: (item["source"], item["url"]))


@pytest.mark.parametrize(
    "settings",
    [{}, {"FEED_EXPORT_INDENT": 2}, {"FEED_EXPORT_FIELDS": "url,source", "FEED_EXPORT_INDENT": 0}],
)
def test_every_format_is_what_the_run_exported(web, crawl, export, tmp_path, settings):
    runs = {ending: tmp_path / f"run.{ending}" for ending in FORMATS}
    feeds = json.dumps({str(file): {"format": ending} for ending, file in runs.items()})
    crawl(web, sources=SOURCES, settings={"FEEDS": feeds} | settings)
    for ending, run in runs.items():
        file = tmp_path / f"export.{ending}"
        result = export("-o", file, **settings)
        assert result.returncode == 0, result.stderr
        assert result.stderr == f"6 entries written to {file}\n".encode()
        added = () if "FEED_EXPORT_FIELDS" in settings else ADDED
        rows = read(file, ending)
        assert {tuple(row)[-len(ADDED) :] for row in rows} == {added or ("url", "source")}
        ours = [{name: row[name] for name in row if name not in added} for row in rows]
        assert ours == read(run, ending), ending
        if not added:  # to the byte, but for the order of one response's entries
            assert sorted(file.read_bytes()) == sorted(run.read_bytes()), ending
        elif not settings:
            assert [list(row) for row in ours] == [COLUMNS] * 6


def test_several_runs_are_one_record_in_the_order_they_saw_it(loopback_web, crawl, again, export):
    pages = [feed(posts=["One"]), feed(posts=["Two", "Three"], host="next.example")]
    web = loopback_web(site("blog.example", feed=pages))
    sources = ["http://blog.example/feed"]
    crawl(web, sources=sources)
    rows_of(crawl, "UPDATE entries SET first_seen = first_seen - 20")
    between = (datetime.now(UTC) - timedelta(seconds=10)).isoformat(timespec="milliseconds")
    again(web, sources=sources)
    titles = [json.loads(line)["title"] for line in export("-o", "-").stdout.splitlines()]
    assert titles[0] == "One"
    assert sorted(titles[1:]) == ["Three", "Two"]
    assert export("-o", "-").stdout == export("-o", "-").stdout
    new = export("-o", "-", "--no-backfill").stdout.splitlines()
    assert sorted(json.loads(line)["title"] for line in new) == ["Three", "Two"]
    for since, count in ((between, 2), ("P1D", 3), ("2999-01-01", 0), ("2020-01-01", 3)):
        result = export("-o", "-", "--since", since)
        assert len(result.stdout.splitlines()) == count, since
        assert result.stderr.startswith(f"{count} entries ".encode())


def test_exported_entries_can_be_selected(web, crawl, export, tmp_path):
    crawl(web, sources=SOURCES)

    def sources(*arguments):
        result = export("-o", "-", "--format", "json", *arguments)
        assert result.returncode == 0, result.stderr
        return {item["source"] for item in json.loads(result.stdout)}

    blog, other = (source["url"] for source in SOURCES)
    assert sources("--source", other) == {other}
    assert sources("--source", "HTTP://Other.example:80/feed", "--source", blog) == {blog, other}
    assert sources("--no-backfill") == set()
    new = tmp_path / "new.txt"
    new.write_text("http://new.example/feed")
    never_visited = ("--sources", new, "--source", "http://new.example/feed/")
    assert sources(*never_visited) == set()
    assert sources(*never_visited, "--source", blog) == {blog}


def test_the_sources_are_exported_as_opml_and_read_back(web, crawl, export, tmp_path):
    crawl(web, sources=SOURCES)
    file = tmp_path / "sources.opml"
    result = export("-o", file)
    assert (result.returncode, result.stdout) == (0, b"")
    assert result.stderr == f"2 sources written to {file}\n".encode()
    blog, other = load_sources(file)
    assert (blog.url, blog.name, blog.tags) == (SOURCES[0]["url"], "Blog & more", ("a", "b"))
    assert (other.url, other.name, other.tags) == (SOURCES[1]["url"], "Other", ())
    root = ET.fromstring(file.read_text("utf-8"))
    assert (root.tag, root.get("version")) == ("opml", "2.0")
    one = export("-o", "-", "--format", "opml", "--source", other.url)
    assert one.stdout.count(b"<outline") == 1


@pytest.fixture
def old_file(web, crawl, tmp_path):
    """A private file that is there before an export of a crawl."""
    crawl(web, sources=SOURCES)
    file = tmp_path / "old.jsonl"
    file.write_text("old")
    file.chmod(0o600)
    return file


def test_existing_file_is_not_replaced_without_request(old_file, export):
    refused = export("-o", old_file)
    assert refused.returncode == 1
    assert str(old_file).encode() in refused.stderr
    assert old_file.read_text() == "old"


def test_existing_file_is_replaced_as_a_whole_or_not_at_all(old_file, export, tmp_path):
    with sqlite3.connect(tmp_path / "crawl" / "walsh.sqlite3") as database:
        database.execute("UPDATE entries SET item = 'broken' WHERE source LIKE '%other%'")
    database.close()
    broken = export("-O", old_file)
    assert broken.returncode == 3
    assert b"cannot be read" in broken.stderr
    assert len(broken.stderr.splitlines()) == 1
    assert old_file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_replaced_file_keeps_its_permissions(old_file, export):
    assert export("-O", old_file, "--source", SOURCES[0]["url"]).returncode == 0
    assert len(read(old_file, "jsonl")) == 5
    assert old_file.stat().st_mode & 0o777 == 0o600


def test_opml_needs_no_state_and_makes_none(export, tmp_path):
    """Its folder is made, and a link is followed, as by a run."""
    file, link = tmp_path / "new" / "folder" / "a.opml", tmp_path / "link.opml"
    assert export("-o", file).returncode == 0
    assert [source.url for source in load_sources(file)] == [source["url"] for source in SOURCES]
    link.symlink_to(file)
    assert export("-O", link).returncode == 0
    assert link.is_symlink()
    assert export("-o", "/dev/null", "--format", "opml").returncode == 0
    assert not (tmp_path / "crawl").exists()


def test_a_place_that_takes_no_file_is_one_line(export, tmp_path):
    nowhere = export("-o", "/proc/nowhere/a.opml")
    assert nowhere.returncode == 1
    assert b"/proc/nowhere/a.opml cannot be written" in nowhere.stderr
    assert export("-O", tmp_path, "--format", "opml").returncode == 1
