"""Sources in trouble: what the report says of each, and what to do."""

import pytest

from tests.helpers.records import known_of
from tests.helpers.reportstate import DAY, NOW
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.tools.sources.overview import SourceRow, next_visit

URL = "http://a.example/feed"
#: Fields of a source whose site refuses it.
BUSY = {"outcome": "refused", "status": 429, "refused_since": NOW - 3 * DAY}


def row_of(**fields):
    source = Source(URL)
    record = SourceRecord(
        **{"url": URL, "kind": "feed", "fetched_at": NOW, "asked_until": NOW} | fields
    )
    return SourceRow(
        source,
        record,
        next_visit(known_of(record, DAY, NOW), source, DAY, NOW),
        0,
        None,
        "a.example",
    )


@pytest.mark.parametrize(
    ("fields", "what", "advice", "command"),
    [
        (
            {"outcome": "gone", "asked_until": float("inf")},
            "gone",
            "out of the sources file",
            "sources resume",
        ),
        ({"failures": 1, "status": 404}, "failing", "Nothing is at this address", "discover"),
        ({"failures": 1, "status": 403}, "failing", "does not want this", ""),
        ({"failures": 1, **BUSY}, "refused", "asked to wait", "scrapy hosts"),
        ({"fetched_at": None, **BUSY}, "refused", "asked to wait", "scrapy hosts"),
        ({"resent": 3, "etag": b'W/"1"'}, "resent", "nginx: no gzip", ""),
        ({"resent": 3, "etag": b'"1"'}, "resent", "compare If-None-Match", ""),
        ({"failures": 1, "status": 500}, "failing", "Nothing to do yet", ""),
        ({"failures": 5, "status": 500}, "failing", "Write to its owner", ""),
        ({"failures": 1, "status": 200}, "failing", "could not be read as a feed", "discover"),
        ({"failures": 1}, "failing", "did not answer. Nothing to do yet", ""),
        ({"failures": 5}, "failing", "Check its address", "discover"),
        ({"outcome": "denied by blocklist"}, "denied", "It is on a blocklist", "mayfetch"),
        ({"outcome": "denied by night"}, "denied", "night, a gate of this project", "why"),
        (
            {"moved_to": "http://b.example/", "moved_since": 1.0, "move_settled": True},
            *("moved", "scrapy sources has the line", ""),
        ),
    ],
)
def test_each_trouble_says_what_to_do(fields, what, advice, command):
    assert row_of(outcome="fetched").problem is None
    found = row_of(**fields).problem
    assert found.what == what
    assert advice in found.advice
    assert (command in found.command) if command else found.command == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"failures": 3, "failing_since": NOW - 2 * DAY}, "since 2026-05-21 06:00:00 UTC"),
        ({"outcome": "gone", "asked_until": float("inf")}, "since 2026-05-23 06:00:00 UTC"),
        ({"fetched_at": None, **BUSY}, "since 2026-05-20 06:00:00 UTC"),
        ({"outcome": "denied by robots"}, "last seen 2026-05-23 06:00:00 UTC"),
    ],
)
def test_each_trouble_says_since_when(fields, words):
    assert row_of(**fields).problem.since == words
