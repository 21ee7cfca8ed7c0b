"""`scrapy export -o new.atom`: a feed by RFC 4287, of what is new."""

import contextlib
import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import feedparser
import pytest
from scrapy.settings import Settings

from tests.helpers.records import commit, entry_of
from walsh_scrapy.items import EntryItem
from walsh_scrapy.metadata.feed import parse_feed
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.tools.export import Export

URL, OTHER = "http://a.example/feed", "http://b.example/feed"
READ = SourceRecord(url=URL, kind="feed", outcome="fetched", format="rss20")
HOSTILE = "<b>&amp; ]]> \x00\x1b[2J\u202emoc\ud800 \"'</title>"
ATOM = "{http://www.w3.org/2005/Atom}"
ID = re.compile(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def entry(number, **fields):
    seen = f"2026-05-23T06:00:{number:02}Z"
    given = {"title": f"Title {number}", "url": f"http://a.example/{number}", "first_seen": seen}
    item = EntryItem(kind="feed", source=URL, **given | fields)
    return entry_of(URL, str(number), at=1000.0 + number, item=json.dumps(item.to_dict()))


@pytest.fixture
def state(url):
    with contextlib.closing(State(url)) as state:
        commit(state, replace(READ, format=""), [entry(1, title="there before")])
        commit(state, READ)
        yield state


@pytest.fixture
def export(tmp_path):
    (tmp_path / "sources.json").write_text(json.dumps([{"url": URL, "name": "A"}, OTHER]))
    return Export(settings=Settings(), sources_file=str(tmp_path / "sources.json"))


def written(write, *arguments):
    """A feed, once it was found to be one by RFC 4287 and by feedparser."""
    file = io.BytesIO()
    count = write(file, *arguments)
    body = file.getvalue()
    root = ET.fromstring(body)
    assert root.tag == f"{ATOM}feed"
    for each in (root, *root.iter(f"{ATOM}entry"), *root.iter(f"{ATOM}source")):
        for name in ("id", "title", "updated"):
            assert len(each.findall(f"{ATOM}{name}")) == 1, (each.tag, name)
        assert MOMENT.fullmatch(each.findtext(f"{ATOM}updated"))
    ids = [each.findtext(f"{ATOM}id") for each in (root, *root.iter(f"{ATOM}entry"))]
    assert len(set(ids)) == len(ids) == count + 1
    assert all(map(ID.fullmatch, ids))
    assert root.find(f"{ATOM}author/{ATOM}name") is not None
    links = [each.findall(f"{ATOM}link[@rel='alternate']") for each in root.iter(f"{ATOM}entry")]
    assert all(len(each) == 1 for each in links)
    read = feedparser.parse(body)
    assert (read.version, read.bozo, len(read.entries)) == ("atom10", False, count)
    assert len(parse_feed(body, url=URL, content_type=None, source=URL).entries) == count
    return read


def test_what_is_new_comes_first_and_what_was_there_before_is_not_in_it(state, export, monkeypatch):
    monkeypatch.setattr("walsh_scrapy.tools.export.MOST", 3)
    dated = {"published": "2026-05-20T00:00:00Z", "authors": ["Jo"], "tags": ["x & y"]}
    commit(state, READ, [entry(number) for number in range(2, 5)])
    feed = written(export.write_entries, "atom", state)
    before = {each.title: each.id for each in feed.entries}
    commit(state, READ, [entry(5, **dated)])
    feed = written(export.write_entries, "atom", state)
    assert [each.title for each in feed.entries] == ["Title 5", "Title 4", "Title 3"]
    first, *rest = feed.entries
    assert all(before[each.title] == each.id for each in rest)
    assert (first.link, first.updated, feed.feed.updated) == (
        "http://a.example/5", "2026-05-23T06:00:05Z", "2026-05-23T06:00:05Z",
    )  # fmt: skip
    assert (first.published, first.author) == ("2026-05-20T00:00:00Z", "Jo")
    assert ([tag.term for tag in first.tags], first.source.title) == (["x & y"], "A")


def test_of_the_entries_only_the_newest_are_read(state, export, monkeypatch):
    monkeypatch.setattr("walsh_scrapy.tools.export.MOST", 1)
    old = entry_of(URL, "old", at=1001.5, item="broken")
    commit(state, READ, [old, entry(3)])
    feed = written(export.write_entries, "atom", state)
    assert [each.title for each in feed.entries] == ["Title 3"]
    monkeypatch.setattr("walsh_scrapy.tools.export.MOST", 2)
    with pytest.raises(StateError, match="the entry old in the state cannot be read"):
        written(export.write_entries, "atom", state)


def test_texts_of_strangers_stay_texts(state, export):
    odd = {"title": HOSTILE, "url": None, "tags": [HOSTILE], "authors": [HOSTILE]}
    commit(state, READ, [entry(2, **odd), entry(3, title=None)])
    feed = written(export.write_entries, "atom", state)
    titled, hostile = feed.entries
    assert titled.title == "http://a.example/3"
    assert hostile.link == URL
    assert hostile.title_detail.type == "text/plain"
    for text in (hostile.title, hostile.tags[0].term, hostile.author):
        assert text.startswith("<b>&amp; ]]> [2Jmoc")
        assert text.endswith("\"'</title>")


def test_a_feed_of_nothing_is_a_feed(state, export):
    assert written(export.write_entries, "atom", state).feed.title == "Walsh-Research: new"
