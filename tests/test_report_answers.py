"""What a run without declared sources came to, in a few lines."""

import pytest

from walsh_scrapy.tools.answers import answer_lines, has_agenda


@pytest.mark.parametrize(
    ("stats", "lines"),
    [
        ({}, ["answered          0"]),
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
                "answered         12   robots.txt included",
                "denied            3   1 by blocklist, 2 by robots",
                "undeclared        4   never asked for (R6)",
                "deferred          5   they ask for a wait beyond this run",
                "asked again       6   after 429 or 503",
            ],
        ),
    ],
)
def test_what_did_not_happen_is_left_out(stats, lines):
    assert answer_lines(stats) == lines


def test_a_run_that_finds_nothing_due_still_goes_by_its_sources():
    assert has_agenda({"walsh/sources/due": 0})
    assert not has_agenda({"response_received_count": 1})
