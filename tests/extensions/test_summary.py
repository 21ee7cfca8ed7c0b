"""The progress and the summary of a run: by source, or by request without declared sources."""

import io
import json
import os
import sys
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

from walsh_scrapy.crawl.context import Retry
from walsh_scrapy.crawl.problems import Problems
from walsh_scrapy.extensions.summary import (
    Display,
    awaited,
    done_sources,
    is_none_read,
    progress_counts,
    summary_lines,
    summary_of,
)
from walsh_scrapy.policy.frontier import NextHost
from walsh_scrapy.programname import program_name

SCHEMA = json.loads((files("walsh_scrapy") / "summary.schema.json").read_text("utf-8"))
DAY = "1970-01-02 00:00:00 UTC"
RUN = {"run": 1, "spider": "feeds", "started_at": 1.0, "ended_at": 2.0}


def lines_of(stats, problems=None, reason="finished", now=2.0):
    return summary_lines(summary_of(stats, problems or Problems(), reason, now))


def of_sources(**counts):
    return {f"walsh/sources/{name}": count for name, count in counts.items()}


@pytest.mark.parametrize(
    ("stats", "lines"),
    [
        ({}, ["responses         0"]),
        (
            {
                "response_received_count": 12,
                "walsh/robots/denied": 2,
                "walsh/blocklist/denied": 1,
                "walsh/scope/dropped": 4,
                "walsh/requests/deferred": 5,
                "walsh/backoff/retried": 6,
            },
            [
                "responses        12   robots.txt included",
                "denied            3   1 by blocklist, 2 by robots",
                "undeclared        4   not requested (R6)",
                "deferred          5   to a later run; the log has the reasons",
                "retried           6   after 429 or 503",
            ],
        ),
    ],
)
def test_outcomes_with_a_count_of_zero_are_left_out(stats, lines):
    assert lines_of(stats) == lines


def test_the_outcomes_of_sources_have_a_line_each():
    stats = of_sources(due=5, fetched=1, not_due=1, next_due=0.0, resting=1) | {
        "walsh/sources/denied/robots": 1,
        "walsh/sources/denied/blocklist": 2,
        "walsh/robots/comments": {"http://blog.example:80": ("be brief",)},
    }
    assert done_sources(stats) == 4
    assert lines_of(stats, reason="shutdown") == [
        "fetched           1",
        "denied            3   2 by blocklist, 1 by robots",
        "not reached       1   still due: the run ended before",
        "not due           1   the next one at 1970-01-01 00:00:00 UTC",
        "stopped           1   gone (410) on an earlier visit",
        "new entries       0",
        "http://blog.example:80/robots.txt has the comment: be brief",
        "next: start the run again: 1 source still due",
    ]


def test_a_run_of_which_all_went_well_asks_for_nothing():
    stats = of_sources(due=2, fetched=1, unchanged=1) | {"walsh/entries/new": 7}
    assert not [line for line in lines_of(stats) if line.startswith("next")]


def test_ten_thousand_failures_are_ten_lines():
    problems = Problems()
    for number in range(10_000):
        host = f"h{number}.example"
        status = 500 + min(number // 100, 50)
        problems.failed(f"http://{host}/feed", f"{host} answered {status}")
        problems.defer(f"http://p{number}.example/feed", 86_400.0 + number)
    stats = of_sources(
        due=20_100, fetched=100, failed=10_000, deferred=10_000, deferred_until=86_400.0
    )
    lines = lines_of(stats, problems)
    assert lines == [
        "fetched         100",
        f"deferred      10000   the first until {DAY}: p0.example",
        "failed        10000   5000 answered 550: h5000.example, h5001.example and 4998 more hosts",
        "                      100 answered 500: h0.example, h1.example and 98 more hosts",
        "                      100 answered 501: h100.example, h101.example and 98 more hosts",
        "                      100 answered 502: h200.example, h201.example and 98 more hosts",
        "                      4700 for other reasons",
        "new entries       0",
        f"next: `{program_name()} sources` shows the start of each failure, and the next visit",
        f"next: start the run again after {DAY}: 10000 sources still due",
    ]
    record = json.loads(json.dumps(RUN | summary_of(stats, problems, "finished", 2.0)))
    Draft202012Validator(SCHEMA).validate(record)
    assert len(json.dumps(record)) < 50_000
    assert record["failures"][0]["more_hosts"] == 4980


@pytest.mark.parametrize(("now", "when"), [(86_399.0, f" after {DAY}"), (86_400.0, "")])
def test_no_run_is_to_be_started_after_a_moment_that_has_passed(now, when):
    stats = of_sources(due=1, deferred=1, deferred_until=86_400.0)
    said = f"start the run again{when}: 1 source still due"
    assert lines_of(stats, now=now)[-1] == f"next: {said}"
    assert summary_of(stats, Problems(), "finished", now)["next"] == [said]


def test_a_run_without_sources_is_an_object_of_the_schema_too():
    validator = Draft202012Validator(SCHEMA)
    record = RUN | summary_of({"response_received_count": 3}, Problems(), "finished", 2.0)
    validator.validate(record)
    assert not validator.is_valid(record | {"fetched": 1})


def test_the_comments_of_many_sites_are_counted():
    said = ("be brief", "please")
    comments = {f"http://h{number}.example:80": said for number in range(8000)}
    lines = lines_of({"walsh/sources/due": 0, "walsh/robots/comments": comments})
    assert (
        len(
            [
                line
                for line in lines
                if line.endswith("robots.txt has the comment: be brief · please")
            ]
        )
        == 3
    )
    assert lines[-1] == "… and 7,997 more with comments in robots.txt"


@pytest.mark.parametrize(
    ("counts", "none_read"),
    [
        ({}, False),
        ({"failed": 2}, True),
        ({"failed": 2, "deferred": 3, "denied/robots": 1, "gone": 1}, True),
        ({"failed": 2, "fetched": 1}, False),
        ({"failed": 2, "unchanged": 1}, False),
        ({"deferred": 3, "denied/robots": 1, "gone": 1}, False),
    ],
)
def test_sources_failed_and_none_was_read(counts, none_read):
    assert is_none_read(of_sources(**counts)) is none_read


# The progress of a run.


class Queue:
    """What a queue of our scheduler says."""

    def __init__(self, asked=(), turn=None, *, is_restricted=False):
        self.in_flight = list(asked)
        self.frontier = self
        self.is_restricted = is_restricted
        self._turn = turn

    def next_host(self):
        return self._turn


def test_the_outcomes_are_those_of_the_stats():
    stats = {"walsh/sources/due": 4, "walsh/sources/failed": 1, "walsh/sources/denied/robots": 2}
    assert progress_counts(stats) == "3 of 4 sources done, 0 new entries, 1 failed, 2 denied"
    assert progress_counts({"walsh/sources/due": 0}).startswith("0 of 0 sources done")
    assert progress_counts({"response_received_count": 5}) == "5 responses"


def test_the_awaited_host_is_named_with_reason_and_time():
    retries, now = {}, 1000.0
    turn = NextHost("slow.example", now + 12.0, 5.0)

    def told(queue, passed=0.0):
        return awaited(queue, retries, now + passed)

    assert told(Queue()) == ""
    assert told(Queue(turn=NextHost("a.example", now - 1.0, None))) == ""
    assert told(Queue(turn=turn)) == (
        "waiting for slow.example: next request in 12 s (its delay is 5 s)"
    )
    usual = turn._replace(delay=None)
    assert told(Queue(turn=usual)) == "waiting for slow.example: next request in 12 s"
    assert told(Queue(["a.example"], turn)) == "requesting a.example"
    assert told(Queue(["a.example", "b.example"])) == "requesting a.example and 1 more host"
    assert (
        told(Queue(["op.example"], is_restricted=True)) == "requesting op.example for the blocklist"
    )
    restricted = Queue(turn=usual, is_restricted=True)
    assert told(restricted) == "waiting for the blocklist: next request in 12 s"
    refused = Retry(2, 5, now + 12.0, "answered 429", for_blocklist=False)
    retries["slow.example"] = refused
    assert told(Queue(turn=turn)) == (
        "waiting for slow.example, which answered 429: try 2 of 5 in 12 s"
    )
    retries["op.example"] = Retry(3, 5, now + 8.0, "answered 503", for_blocklist=True)
    assert told(Queue(["a.example"], turn)) == "waiting for the blocklist: try 3 of 5 in 8 s"
    assert told(Queue(turn=turn), passed=8.0) == (
        "waiting for slow.example, which answered 429: try 2 of 5 in 4 s"
    )


@pytest.fixture
def terminal():
    """A stream to a terminal."""
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as stream:
        yield stream
    os.close(master)


def test_a_terminal_that_can_show_a_display_has_one(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    first = Display.open(["file:///items.jsonl"])
    assert first
    assert Display.open([]) is None, "of two crawls in a process one has a display"
    first.show(["57 of 206 sources done", "at least 3 min left"])
    first.close()
    assert sys.stderr is terminal
    monkeypatch.setattr(sys, "stdout", terminal)
    assert Display.open(["stdout:"]) is None, "items would be written into it"
    monkeypatch.setenv("TERM", "dumb")
    assert Display.open([]) is None


def test_what_is_no_terminal_has_no_display(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert Display.open([]) is None
