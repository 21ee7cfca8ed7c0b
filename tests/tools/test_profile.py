"""`scrapy sources show`: all that the record has of one source, on both databases."""

import contextlib
from datetime import timedelta

from scrapy.settings import Settings

from tests.helpers.records import commit
from walsh_scrapy.options import Options
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.tools.output import as_dict, record
from walsh_scrapy.tools.sources.overview import COLUMNS, build_overview

NOW = 1_779_516_000.0
URL, THERE = "http://a.example/feed", "http://b.example/feed"
SOURCE = Source(
    URL, name="A", tags=("x",), every=timedelta(days=7), pause=timedelta(seconds=5), folders=("F",)
)
RECORDED = SourceRecord(
    url=URL,
    kind="feed",
    fetched_at=NOW,
    asked_until=NOW + 86_400.0,
    outcome="fetched",
    detail="http://b.example/feed has too many entries: 3, the oldest, are left out",
    status=200,
    asked_interval=7200.0,
    wished_interval=3600.0,
    skip_days="Sunday",
    moved_to=THERE,
    moved_since=NOW - 900_000.0,
    move_settled=True,
    validator_url=THERE,
    etag=b'"\xfc"',
    format="rss20, repaired",
)
OPTIONS = Options.from_settings(Settings())


def record_of(state):
    (row,) = build_overview([SOURCE], state, OPTIONS, NOW).declared
    return "\n".join(record(row, COLUMNS)), as_dict(row, COLUMNS)


def test_a_source_is_told_with_every_column(url):
    with contextlib.closing(State(url)) as state:
        commit(state, RECORDED)
        text, told = record_of(state)
    facts = {tuple(line.split(maxsplit=1)) for line in text.splitlines()}
    wanted = (
        ("name", "A"), ("tags", "x"), ("folder", "F"), ("every", "7 d"), ("pause", "5 s"),
        ("status", "200"), ("format", "rss20, repaired"), ("etag", '"ü"'), ("host", "b.example"),
    )  # fmt: skip
    assert [each for each in wanted if each not in facts] == []
    for words in (f"{THERE} (visited there)", "3, the oldest, are left out", "Sunday", "2 h"):
        assert words in text
    assert (told["etag"], told["folder"], told["wished_interval"]) == ('"ü"', "F", 3600.0)


def test_without_a_state_there_is_the_declaration():
    text, told = record_of(None)
    assert text.splitlines()[0] == URL
    assert "not visited yet" in text
    assert (told["every"], told["fetched_at"]) == (604_800.0, None)
