"""The summary of a run: by source, or by request without declared sources."""

import json
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

from walsh_scrapy.crawl.outcome import Problems
from walsh_scrapy.extensions.summary import SourceCounts, counts_of, is_by_source, summary_lines

SCHEMA = json.loads((files("walsh_scrapy") / "summary.schema.json").read_text("utf-8"))
DAY = "1970-01-02 00:00:00 UTC"
RUN = {"run": 1, "spider": "feeds", "begun": 1.0, "ended": 2.0, "how": "finished"}


def lines_of(stats, problems=None, how="finished", now=2.0):
    return summary_lines(stats, problems or Problems(), how, now)


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
    assert SourceCounts.of(stats).done == 4
    assert lines_of(stats, how="shutdown") == [
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
        f"deferred      10000   the first until {DAY}: p0.example, p1.example and 9998 more hosts",
        "failed        10000   5000 answered 550: h5000.example, h5001.example and 4998 more hosts",
        "                      100 answered 500: h0.example, h1.example and 98 more hosts",
        "                      100 answered 501: h100.example, h101.example and 98 more hosts",
        (
            "                      4800 for 48 more reasons: "
            "h200.example, h201.example and 4798 more hosts"
        ),
        "new entries       0",
        "next: `scrapy sources` shows the start of each failure, and the next visit",
        f"next: start the run again after {DAY}: 10000 sources still due",
    ]
    record = json.loads(json.dumps(RUN | counts_of(stats, problems, "finished", 2.0)))
    Draft202012Validator(SCHEMA).validate(record)
    assert len(json.dumps(record)) < 50_000
    assert record["failures"][0]["more_hosts"] == 4980


@pytest.mark.parametrize(("now", "when"), [(86_399.0, f" after {DAY}"), (86_400.0, "")])
def test_no_run_is_to_be_started_after_a_moment_that_has_passed(now, when):
    stats = of_sources(due=1, deferred=1, deferred_until=86_400.0)
    said = f"start the run again{when}: 1 source still due"
    assert lines_of(stats, now=now)[-1] == f"next: {said}"
    assert counts_of(stats, Problems(), "finished", now)["next"] == [said]


def test_a_run_without_sources_is_an_object_of_the_schema_too():
    validator = Draft202012Validator(SCHEMA)
    record = RUN | counts_of({"response_received_count": 3}, Problems(), "finished", 2.0)
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


def test_a_run_without_due_sources_is_summed_up_by_source():
    assert is_by_source({"walsh/sources/due": 0})
    assert not is_by_source({"response_received_count": 1})


@pytest.mark.parametrize(
    ("counts", "none_was_read"),
    [
        ({}, False),
        ({"failed": 2}, True),
        ({"failed": 2, "deferred": 3, "denied/robots": 1, "gone": 1}, True),
        ({"failed": 2, "fetched": 1}, False),
        ({"failed": 2, "unchanged": 1}, False),
        ({"deferred": 3, "denied/robots": 1, "gone": 1}, False),
    ],
)
def test_sources_failed_and_none_was_read(counts, none_was_read):
    assert SourceCounts.of(of_sources(**counts)).none_was_read is none_was_read
