"""Times as operators write them: dates, RFC 3339 times, durations ago."""

import math
from datetime import UTC, datetime

import pytest

from walsh_scrapy.policy.timestamps import parse_since, rfc3339

DAY = 86_400.0
NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-05-20", NOW - 12 * 3600),
        ("2026-05-20T12:00:00Z", NOW),
        ("2026-05-20t14:00:00.5+02:00", NOW + 0.5),
        ("P7D", NOW - 7 * DAY),
        (" PT0S ", NOW),
        ("today", NOW - 12 * 3600),
        ("Yesterday", NOW - 36 * 3600),
        ("1d", NOW - DAY),
        ("2w", NOW - 14 * DAY),
        ("90min", NOW - 5400),
        ("12h", NOW - 12 * 3600),
    ],
)
def test_parse_since(text, moment):
    assert parse_since(text, NOW) == moment


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "1m", "-1d", "1.5d", "\uff11d", "999999999w", "d",
     "2026-13-01", "2026-05-20T12:00:00", "20260520", "P1M", "-P1D", "2026-W20",
     "2026-02-30", "9" * 400],
)  # fmt: skip
def test_since_what_is_no_time_is_refused_in_one_sentence(text):
    with pytest.raises(ValueError, match="write for example"):
        parse_since(text, NOW)


@pytest.mark.parametrize("beyond", [math.inf, math.nan, 1e30, None])
def test_a_time_after_the_year_9999_has_no_text(beyond):
    assert rfc3339(beyond) is None
