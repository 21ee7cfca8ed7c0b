"""`scrapy sources show`: all that the record has of one source, on both databases."""

import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest
from scrapy.settings import Settings

from tests.helpers.records import DENIAL, RECORD, commit, hold, log_requests
from walsh_scrapy.options import Options
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.tools.sources.overview import build_overview
from walsh_scrapy.tools.sources.profile import build_profile

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
SENT = replace(RECORD, host="b.example", url=THERE, run=7, source=URL)
OPTIONS = Options.from_settings(Settings())


def profile_of(state):
    (row,) = build_overview([SOURCE], state, OPTIONS, NOW).declared
    return build_profile(row, state, OPTIONS)


@pytest.fixture
def state(url):
    sent = [replace(SENT, sent_at=NOW - 100.0 * number) for number in range(12)]
    sent += [replace(SENT, sent_at=NOW + 1.0, source=f"{URL}/other")]
    with contextlib.closing(State(url)) as state:
        commit(state, RECORDED)
        log_requests(state, *sent)
        yield state


def test_a_source_is_told_from_end_to_end(state):
    hold(state, "b.example", 7200.0, "visit-time")
    state.evidence.deny(
        replace(DENIAL, at=NOW, host="b.example", url=THERE, reason="line 2", run=7)
    )
    text = "\n".join(profile_of(state).lines())
    wanted = (
        "kind feed, named 'A'", "tags x", "in the folder F", "visited every 7 d at most",
        "a pause of 5 s between requests", "status 200", "3, the oldest, are left out",
        f"moved {THERE} (visited there)", "rss20, repaired", f"of {THERE}", 'ETag: "ü"',
        "its server asked for 2 h", "its feed asks for 1 h", "its feed skips Sunday",
        f"{THERE}  200, after", "run 7", "by robots: line 2",
        "on hold until", "its robots.txt asks for that (Visit-time)",
    )  # fmt: skip
    assert [each for each in wanted if each not in text] == []
    assert "no source of ours" not in text
    told = profile_of(state).as_dict()
    assert [each["sent_at"] for each in told["requests"]][:2] == [
        "2026-05-23T06:00:00Z", "2026-05-23T05:58:20Z",
    ]  # fmt: skip
    assert len(told["requests"]) == 10
    assert (told["etag"], told["folder"], told["every"]) == ('"ü"', "F", 604_800.0)
    assert told["denial"]["reason"] == "line 2"


def test_without_a_state_there_is_the_declaration():
    lines = list(profile_of(None).lines())
    assert lines[0] == URL
    assert not any("  asked" in line or "  host" in line for line in lines)
    assert profile_of(None).as_dict()["host_hold_until"] is None
