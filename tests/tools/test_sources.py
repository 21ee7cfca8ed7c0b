"""The rows of `scrapy sources`: when each source is due and why, their order and their words."""

import io
import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len
from rich.console import Console
from scrapy.settings import Settings

from tests.helpers import ROOT
from tests.helpers.records import commit, entry_of, known_of
from walsh_scrapy.options import Options
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.tools.output import as_dict, json_array, screen, table
from walsh_scrapy.tools.sources.changes import UnknownSource, find_sources
from walsh_scrapy.tools.sources.overview import COLUMNS, build_overview, next_visit, totals

DAY = 86_400.0
NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC).timestamp()  # a Wednesday
URL = "http://a.example/feed"
HOSTILE = "\x1b]0;owned\x07[bold red]x[/] \u202emoc\u2028\x9b2J"


#: The end of the last visit.
VISITED = NOW - 3600


def record(url=URL, **fields):
    visited = {"fetched_at": VISITED, "asked_until": VISITED, "outcome": "fetched"}
    return SourceRecord(**{"url": url, "kind": "feed"} | visited | fields)


def server_asks(seconds):
    return {"asked_interval": seconds, "asked_until": VISITED + seconds}


def visit_after(found, min_revisit=DAY, every=None):
    return next_visit(
        known_of(found, min_revisit, NOW, every), Source(URL, every=every), min_revisit, NOW
    )


@pytest.mark.parametrize(
    ("fields", "rule", "why"),
    [
        ({"fetched_at": None, "asked_until": 0.0}, "new", "not visited yet"),
        (
            {"fetched_at": None, "asked_until": 0.0, "outcome": "refused", "status": 429},
            *("new", "refused (429)"),
        ),
        (
            {"fetched_at": NOW + 365 * DAY},
            *("clock", "its last visit lies in the future, 2027-05-20 12:00:00 UTC"),
        ),
        ({}, "revisit", "every 1 d"),
        (server_asks(5 * DAY), "server", "the server asked for 5 d"),
        (
            server_asks(5 * DAY) | {"wished_interval": 5 * DAY},
            "feed",
            "the feed asked for 5 d",
        ),
        (
            server_asks(5 * DAY) | {"wished_interval": 2 * DAY},
            "server",
            "the server asked for 5 d",
        ),
        (
            {"wished_interval": 365 * DAY, "asked_until": VISITED + 30 * DAY},
            *("feed", "the feed asked for 30 d"),
        ),
        ({"failures": 1}, "failing", "failing, again after 1 d"),
        ({"failures": 3}, "failing", "failing, doubled to 4 d"),
        ({"failures": 9}, "failing", "failing, doubled to 30 d"),
        ({"failures": 2} | server_asks(7 * DAY), "server", "the server asked for 7 d"),
        ({"outcome": "gone", "asked_until": math.inf, "failures": 1}, "gone", "when you resume it"),
        ({"outcome": "gone", "asked_until": 0.0}, "resumed", "you resumed it"),
        ({"skip_hours": "11,12", "asked_until": NOW + DAY}, "skip", "the feed's skipHours"),
        ({"skip_days": "Thursday", "asked_until": NOW + 2 * DAY}, "skip", "the feed's skipDays"),
    ],
)
def test_each_next_visit_has_its_rule(fields, rule, why):
    found = visit_after(record(**fields))
    assert found.rule == rule
    assert found.why.startswith(why)
    assert found.is_due == (rule in ("new", "clock", "resumed"))


def test_every_and_the_server_decide_when_a_source_is_due():
    rare = visit_after(record(), every=timedelta(days=7))
    assert (rare.rule, rare.why) == ("every", "every 7 d, as declared")
    due = visit_after(record(), 3600.0)
    assert (due.is_due, due.at) == (True, NOW)
    assert not next_visit(known_of(record(asked_until=0.0), DAY, NOW), None, DAY, NOW).is_due
    asked = visit_after(record(**server_asks(7200.0)), 3600.0)
    assert (asked.is_due, asked.rule, asked.at) == (False, "server", NOW + 3600)


def overview_of(records, sources=None, **settings):
    """The overview of a state in memory."""
    state = State("sqlite://")
    for each in records:
        commit(state, each)
    declared = sources or [Source(each.url) for each in records]
    options = Options.from_settings(Settings({"WALSH_STATE_URL": "sqlite://"} | settings))
    found = build_overview(declared, state, options, NOW)
    state.close()
    return found


def test_trouble_comes_first():
    found = overview_of(
        [
            record("http://later.example/", fetched_at=NOW - DAY + 9),
            record("http://sooner.example/", fetched_at=NOW - DAY + 8),
            record("http://due.example/", fetched_at=NOW - DAY - 1),
            record("http://new.example/", fetched_at=None, asked_until=0.0, outcome="new"),
            record("http://denied.example/", outcome="denied by robots", failures=1),
            record("http://busy.example/", outcome="refused", refused_since=NOW - DAY),
            record("http://ill.example/", outcome="failed", failures=1),
            record("http://dying.example/", outcome="failed", failures=7),
            record("http://gone.example/", outcome="gone", failures=8, asked_until=math.inf),
        ]
    )
    names = [row.host.removesuffix(".example") for row in found.by_urgency()]
    assert names == ["gone", "dying", "ill", "busy", "denied", "new", "due", "sooner", "later"]
    assert totals(found.by_urgency()) == (
        "9 sources: 1 gone, 2 failing, 1 refused, 1 denied, 1 new, 2 due now"
    )


@pytest.mark.parametrize(
    ("etag", "resent", "words"),
    [
        (b'W/"1"', 3, "3 times in a row for its own validators; its ETag is weak: a proxy such as"),
        (b'"1"', 4, "4 times in a row for its own validators; its server does not compare them"),
        (None, 3, "its server does not compare them"),
        (b'W/"1"', 2, ""),
    ],
)  # fmt: skip
def test_a_server_that_never_answers_304_is_told_with_the_cause(etag, resent, words):
    (row,) = overview_of([record(etag=etag, resent=resent)]).declared
    (_, line) = table([row], COLUMNS)
    assert words in line
    assert bool(row.problem) == bool(words) == ("never 304" in line)
    assert not row.is_in_trouble


def test_due_sources_are_listed_in_the_order_of_a_run():
    """By kind; then the host with most work; then the source that is due longest."""
    declared = [
        Source("http://one.example/llms", kind="llms"),
        Source("http://one.example/"),
        Source("http://two.example/new"),
        Source("http://two.example/old"),
        Source("http://no.example/"),
    ]
    records = [
        record("http://two.example/new", fetched_at=NOW - DAY - 1),
        record("http://two.example/old", fetched_at=NOW - DAY - 9),
        record("http://no.example/"),
    ]
    urls = [row.record.url for row in overview_of(records, declared).due({})]
    assert urls == [declared[index].url for index in (3, 2, 1, 0)]


def test_a_pause_that_the_file_asks_for_counts_in_the_order_of_a_run():
    several = [Source(f"http://two.example/{number}") for number in range(3)]
    rare = Source("http://rare.example/", pause=timedelta(seconds=9))
    found = overview_of([], [*several, rare])
    assert found.due({})[0].record.url == rare.url
    assert found.due({"two.example": 4.0})[0].record.url == several[0].url


def test_a_moved_source_waits_for_its_new_host():
    moved = record(moved_to="http://b.example/feed", moved_since=NOW - DAY, move_settled=True)
    (row,) = overview_of([moved]).declared
    assert row.host == "b.example"
    assert "http://b.example/feed (visited there)" in "".join(table([row], COLUMNS))
    watched = record(moved_to="http://b.example/feed", moved_since=NOW - DAY)
    (row,) = overview_of([watched]).declared
    assert row.host == "a.example"
    assert "(watched since 2026-05-19T12:00:00Z)" in "".join(table([row], COLUMNS))


def test_a_source_with_a_new_spelling_is_one_source():
    older = record(f"{URL}//", failures=1, fetched_at=NOW - 3 * DAY)
    found = overview_of([older, record(f"{URL}/", failures=3)], [Source(URL)])
    (row,) = found.declared
    assert (row.record.url, row.record.failures) == (URL, 3)
    assert found.undeclared == []


def test_markup_from_servers_and_files_is_shown_as_text():
    found = overview_of(
        [
            record(
                outcome="failed", detail=HOSTILE, failures=1, moved_to=f"http://x.example/{HOSTILE}"
            )
        ],
        [Source(URL, name=HOSTILE)],
    ).by_urgency()
    for width in (40, 200):
        written = io.StringIO()
        console = Console(file=written, force_terminal=True, color_system=None, width=width)
        for line in screen(found, COLUMNS, width):
            console.print(line, soft_wrap=True)
        told = re.sub(
            rf"\x1b\]8;id=\d+;{URL}\x1b\\|\x1b\]8;;\x1b\\|\x1b\[[01]?m", "", written.getvalue()
        )
        assert "[bold" in told
        assert not set(told) & set("\x1b\x07\x9b\u202e\u2028")
    piped = "\n".join(table(found, COLUMNS))
    assert len(piped.splitlines()) == 2
    assert r"\x1b]0;owned\x07[bold red]x[/] \u202emoc\u2028\x9b2J" in piped
    written = list(json_array(as_dict(row, COLUMNS) for row in found))
    assert all(line.isprintable() for line in written)
    assert json.loads("".join(written))[0]["detail"] == HOSTILE


def test_in_a_pipe_nothing_is_cut():
    url = f"http://a.example/{'long/' * 200}"
    piped = list(table(overview_of([record(url)]).declared, COLUMNS))
    assert url in piped[1]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_at_a_terminal_facts_fit_the_width_and_no_url_is_cut(width):
    url = f"http://a.example/{'long/' * 60}"
    failed = record(
        url, outcome="failed", status=404, failures=3, detail="a.example " + "answered 404 " * 9,
        moved_to=f"http://b.example/{'there/' * 60}", moved_since=NOW - DAY,
    )  # fmt: skip
    found = overview_of([failed], [Source(url, name="Ünï 日本語 & more", kind="llms")])
    lines = [line.plain for line in screen(found.declared, COLUMNS, width)]
    assert lines[0] == url
    assert [line for line in lines if cell_len(line) > width] == [
        url, f"  {url}", f"  {failed.moved_to}",
    ]  # fmt: skip
    told = " ".join(" ".join(lines).split())
    for fact in ("status 404", "failures 3", "name Ünï 日本語 & more", "kind llms", "404 answered"):
        assert fact in told


def test_what_is_stale_failing_or_moved():
    state = State("sqlite://")
    commit(state, record(), [entry_of(URL, at=NOW - 9 * DAY)])
    never = record("http://never.example/", outcome="denied by robots")
    commit(state, replace(never, visited_since=NOW - 5 * DAY))
    declared = [Source(url) for url in (URL, "http://never.example/", "http://new.example/")]
    rows = build_overview(declared, state, Options.from_settings(Settings()), NOW).declared
    state.close()
    assert [row.is_stale(NOW - 9 * DAY) for row in rows] == [False, False, False]
    assert [row.is_stale(NOW - 8 * DAY) for row in rows] == [True, False, False]
    assert [row.is_stale(NOW - 4 * DAY) for row in rows] == [True, True, False]
    assert [row.is_in_trouble for row in rows] == [False, True, False]
    assert as_dict(rows[0], COLUMNS)["newest_entry"] == "2026-05-11T12:00:00Z"


def test_a_url_means_itself_or_another_spelling_or_nothing():
    known = ["http://a.example/feed", "http://a.example/feed/", "http://b.example/x"]
    assert find_sources("http://a.example/feed", known) == known[:1]
    assert find_sources("HTTP://B.example:80/x#top", known) == known[2:]
    assert find_sources("http://A.example/feed", known) == known[:2]
    with pytest.raises(UnknownSource, match=r"did you mean http://b\.example/x\?"):
        find_sources("http://b.example/y", known)
    with pytest.raises(UnknownSource, match="scrapy sources --all"):
        find_sources("\x1b", known)


def test_the_fields_of_json_and_their_rules_are_those_of_the_docs():
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    table, rules = page.split("| `due_rule` | when", 1)
    (row,) = overview_of([record()]).declared
    fields = re.search(r"\| field \| meaning \|\n\|---\|---\|\n((?:\|.+\n)+)", table)[1]
    assert re.findall(r"^\| `(\w+)`", fields, re.MULTILINE) == list(as_dict(row, COLUMNS))
    rows = re.search(r"\n((?:\|.+\n)+)\n", rules)[1]
    named = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows.splitlines()))
    assert len(set(named)) == len(named) == 11
