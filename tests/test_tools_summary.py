"""The summary of a run: by source, or by request without declared sources."""

import pytest

from walsh_scrapy.tools.summary import SourceCounts, is_by_source, request_lines


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
                "deferred          5   their hosts may not be asked within WALSH_MAX_WAIT",
                "retried           6   after 429 or 503",
            ],
        ),
    ],
)
def test_outcomes_with_a_count_of_zero_are_left_out(stats, lines):
    assert request_lines(stats) == lines


def test_the_outcomes_of_sources_have_a_line_each():
    stats = {
        "walsh/sources/due": 5,
        "walsh/sources/fetched": 1,
        "walsh/sources/denied/robots": 1,
        "walsh/sources/denied/blocklist": 2,
        "walsh/sources/not_due": 1,
        "walsh/sources/next_due": 0.0,
        "walsh/sources/resting": 1,
        "walsh/robots/comments": {"http://blog.example:80": ("be brief",)},
    }
    assert SourceCounts.of(stats).done == 4
    assert SourceCounts.of(stats).lines() == [
        "fetched           1",
        "denied            3   2 by blocklist, 1 by robots",
        "not reached       1   still due: the run ended before",
        "not due           1   the next one at 1970-01-01 00:00:00 UTC",
        "stopped           1   gone (410) on an earlier visit",
        "new entries       0",
        "http://blog.example:80/robots.txt says: be brief",
    ]


def test_the_comments_of_many_sites_are_counted():
    comments = {f"http://h{number}.example:80": ("be brief",) for number in range(8000)}
    lines = SourceCounts.of({"walsh/robots/comments": comments}).lines()
    assert len([line for line in lines if line.endswith("robots.txt says: be brief")]) == 20
    assert lines[-1] == "… and 7,980 more with comments in robots.txt"


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
    stats = {f"walsh/sources/{name}": count for name, count in counts.items()}
    assert SourceCounts.of(stats).none_was_read is none_was_read
