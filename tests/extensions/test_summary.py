"""The progress and the summary of a run: by source, or by request without declared sources."""

import io
import json
import os
import re
import sys
from importlib.resources import files
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator

from walsh_scrapy.crawl.context import Retry
from walsh_scrapy.crawl.declared import Declared
from walsh_scrapy.extensions.summary import Display, awaited
from walsh_scrapy.feeds.feedcrawl import FeedCrawl
from walsh_scrapy.feeds.sourcesummary import Problems, done_sources, source_lines
from walsh_scrapy.policy.frontier import NextHost
from walsh_scrapy.programname import program_name

SCHEMA = json.loads((files("walsh_scrapy") / "summary.schema.json").read_text("utf-8"))
DAY = "1970-01-02 00:00:00 UTC"
RUN = {"run": 1, "spider": "feeds", "started_at": 1.0, "ended_at": 2.0}


def summary_of(stats, problems=None, reason="finished", now=2.0):
    feed_crawl = FeedCrawl(SimpleNamespace(context=SimpleNamespace(run=1)))
    feed_crawl.file = None
    feed_crawl.problems = problems or Problems()
    return feed_crawl.summary(stats, reason, now)


def lines_of(stats, problems=None, **end):
    return summary_of(stats, problems, **end).lines


def progress_counts(stats):
    return FeedCrawl(None).progress(stats)[0]


def counts_of(lines):
    """The counts of a summary by their names."""
    counts = (re.match("([a-z][a-z ]*?)  +([0-9]+)", line) for line in lines)
    return {count[1]: int(count[2]) for count in counts if count}


def of_sources(**counts):
    return {f"walsh/sources/{name}": count for name, count in counts.items()}


@pytest.mark.parametrize(
    ("stats", "counts"),
    [
        ({}, {"responses": 0}),
        (
            {
                "response_received_count": 12,
                "walsh/robots/denied": 2,
                "walsh/blocklist/denied": 1,
                "walsh/scope/dropped": 4,
                "walsh/requests/deferred": 5,
                "walsh/backoff/retried": 6,
            },
            {"responses": 12, "denied": 3, "undeclared": 4, "deferred": 5, "retried": 6},
        ),
    ],
)
def test_outcomes_with_a_count_of_zero_are_left_out(stats, counts):
    assert counts_of(lines_of(stats)) == counts


def test_the_outcomes_of_sources_have_a_line_each():
    stats = of_sources(due=5, fetched=1, not_due=1, next_due=0.0, resting=1) | {
        "walsh/sources/denied/robots": 1,
        "walsh/sources/denied/blocklist": 2,
        "walsh/robots/comments": {"http://blog.example:80": ("be brief",)},
    }
    assert done_sources(stats) == 4
    lines = lines_of(stats, reason="shutdown")
    assert counts_of(lines) == {
        "fetched": 1,
        "denied": 3,
        "not reached": 1,
        "not due": 1,
        "stopped": 1,
        "new entries": 0,
    }
    text = "\n".join(lines)
    assert "2 by blocklist" in text
    assert "1 by robots" in text
    assert "1970-01-01 00:00:00 UTC" in text
    assert re.search(r"http://blog\.example:80/robots\.txt .*be brief", text)
    assert re.match("next: .*1 source", lines[-1])


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
    assert len(lines) == 10
    counts = {"fetched": 100, "deferred": 10_000, "failed": 10_000, "new entries": 0}
    assert counts_of(lines) == counts
    assert [int(re.search("[0-9]+ (?=answered|for)", line)[0]) for line in lines[2:7]] == [
        *(5000, 100, 100, 100, 4700)
    ]
    assert all(host in lines[2] for host in ("h5000.example", "h5001.example", "4998 more"))
    assert all(value in lines[1] for value in (DAY, "p0.example"))
    assert f"`{program_name()} sources`" in lines[-2]
    assert all(value in lines[-1] for value in (DAY, "10000 sources"))
    record = json.loads(json.dumps(RUN | summary_of(stats, problems).record))
    Draft202012Validator(SCHEMA).validate(record)
    assert len(json.dumps(record)) < 50_000
    assert record["failures"][0]["more_hosts"] == 4980


def test_problems_of_sources_are_counted_as_commands_count_them():
    record = summary_of(of_sources(due=1, fetched=1)).record
    lines = source_lines(record | {"problems": {"refused": 2, "failing": 7}})
    assert "problems          9   7 failing, 2 refused (429, 503)" in lines


def test_problems_are_counted_only_if_the_run_visited_a_source():
    """A state of a million sources is not read after a run in which nothing was due."""
    feed_crawl = FeedCrawl(SimpleNamespace(context=SimpleNamespace(run=1)))
    feed_crawl.file = SimpleNamespace(id=7)
    counted = []
    count = lambda file: counted.append(file) or {"failing": 2}  # noqa: E731
    feed_crawl.stores = SimpleNamespace(sources=SimpleNamespace(count_problems=count))
    record = feed_crawl.summary(of_sources(due=0, not_due=9), "finished", 2.0).record
    assert (record["problems"], counted) == ({}, [])
    record = feed_crawl.summary(of_sources(due=1, failed=1), "finished", 2.0).record
    assert (record["problems"], counted) == ({"failing": 2}, [7])
    feed_crawl.summary(of_sources(due=1, failed=1), "finished", 2.0)
    assert counted == [7], "once, although the summary is made again after exports"


@pytest.mark.parametrize(("now", "is_later"), [(86_399.0, True), (86_400.0, False)])
def test_no_run_is_to_be_started_after_a_moment_that_has_passed(now, is_later):
    stats = of_sources(due=1, deferred=1, deferred_until=86_400.0)
    (advice,) = summary_of(stats, now=now).record["next"]
    assert (DAY in advice) is is_later
    assert lines_of(stats, now=now)[-1] == f"next: {advice}"


def test_a_run_without_sources_is_an_object_of_the_schema_too():
    validator = Draft202012Validator(SCHEMA)
    record = RUN | Declared(None).summary({"response_received_count": 3}, "finished", 2.0).record
    validator.validate(record)
    assert not validator.is_valid(record | {"fetched": 1})


def test_the_comments_of_many_sites_are_counted():
    said = ("be brief", "please")
    comments = {f"http://h{number}.example:80": said for number in range(8000)}
    lines = lines_of({"walsh/sources/due": 0, "walsh/robots/comments": comments})
    assert len([line for line in lines if line.endswith("be brief · please")]) == 3
    assert lines[-1].startswith("… and 7,997 more")


@pytest.mark.parametrize(
    ("counts", "hosts", "problem"),
    [
        ({}, 0, ""),
        ({"failed": 2}, 1, ""),
        ({"failed": 2}, 2, "nothing_read"),
        ({"failed": 1, "deferred": 3, "denied/robots": 1, "gone": 1}, 2, "nothing_read"),
        ({"deferred": 3}, 2, "nothing_read"),
        ({"failed": 2, "fetched": 1}, 2, ""),
        ({"failed": 2, "unchanged": 1}, 2, ""),
        ({"deferred": 3, "denied/robots": 1, "gone": 1}, 0, ""),
    ],
)
def test_a_run_that_read_nothing_has_failed(counts, hosts, problem):
    problems = Problems()
    for number in range(hosts):
        problems.unread(f"http://h{number}.example/feed")
    summary = summary_of({"walsh/sources/due": 9} | of_sources(**counts), problems)
    assert summary.record["problem"] == problem
    assert bool(summary.error) is bool(problem)


@pytest.mark.parametrize("due", [{}, {"walsh/sources/due": 1}])
def test_a_run_without_any_blocklist_has_failed(due):
    summary = summary_of(due | {"walsh/blocklist/missing": 1})
    assert summary.record["problem"] == "no_blocklist"
    assert summary_of(due | {"walsh/blocklist/missing": 0}).record["problem"] == ""


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
    numbers = re.findall("[0-9]+", progress_counts(stats))
    assert numbers == ["3", "4", "0", "1", "2"], "done, due, new entries, failed, denied"
    assert progress_counts({"walsh/sources/due": 0}).startswith("0 of 0 ")
    assert progress_counts({"response_received_count": 5}) == "5 responses"


NOW = 1000.0
SLOW = NextHost("slow.example", NOW + 12.0, 5.0)
REFUSED = {"slow.example": Retry(2, 5, NOW + 12.0, "answered 429", for_blocklist=False)}
LIST_REFUSED = {"op.example": Retry(3, 5, NOW + 8.0, "answered 503", for_blocklist=True)}


@pytest.mark.parametrize("queue", [Queue(), Queue(turn=NextHost("a.example", NOW - 1.0, None))])
def test_without_a_wait_nothing_is_awaited(queue):
    assert awaited(queue, {}, NOW) == ""


@pytest.mark.parametrize(
    ("queue", "values"),
    [
        (Queue(turn=SLOW), ["slow.example", "in 12 s", "5 s"]),
        (Queue(turn=SLOW._replace(delay=None)), ["slow.example", "in 12 s"]),
        (Queue(["a.example"], SLOW), ["a.example"]),
        (Queue(["a.example", "b.example"]), ["a.example", "1 more host"]),
        (Queue(["op.example"], is_restricted=True), ["op.example", "blocklist"]),
        (Queue(turn=SLOW, is_restricted=True), ["blocklist", "in 12 s"]),
    ],
)
def test_the_awaited_host_is_named_with_its_time(queue, values):
    text = awaited(queue, {}, NOW)
    assert [value for value in values if value not in text] == []


@pytest.mark.parametrize(
    ("queue", "retries", "passed", "values"),
    [
        (Queue(turn=SLOW), REFUSED, 0.0, ["slow.example", "429", "2 of 5", "in 12 s"]),
        (Queue(turn=SLOW), REFUSED, 8.0, ["slow.example", "429", "2 of 5", "in 4 s"]),
        (Queue(["a.example"], SLOW), LIST_REFUSED, 0.0, ["blocklist", "3 of 5", "in 8 s"]),
        (Queue(turn=SLOW), REFUSED | LIST_REFUSED, 8.0, ["slow.example", "2 of 5", "in 4 s"]),
    ],
)
def test_an_awaited_retry_is_named_with_its_number(queue, retries, passed, values):
    text = awaited(queue, retries, NOW + passed)
    assert [value for value in values if value not in text] == []


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
