"""The facts that may be problems: what planted rows show, the same on both databases."""

import pytest
from sqlalchemy import insert

from tests.helpers import cases
from tests.helpers.planted import DEFAULTS, HOUR, NOW, plant
from walsh_scrapy.policy.problems import MAX_SUBJECTS
from walsh_scrapy.state.sql import Terms
from walsh_scrapy.state.tables import declared, runs


def facts(state, code, **options):
    return [row for row in state.rows("problem_facts", **options) if row["code"] == code]


@cases("planted", "fact")
def test_a_planted_row_is_a_fact(state, clock, planted, fact):
    plant(state, clock, planted)
    found = facts(state, fact["code"])
    if fact.get("absent"):
        assert found == []
        return
    (row,) = found
    for name, value in fact.items():
        expected = None if value == "NULL" else value
        assert row[name] == pytest.approx(expected), name


@cases("planted", "code")
def test_a_planted_row_is_no_fact(state, clock, planted, code):
    plant(state, clock, planted)
    assert facts(state, code) == []


def crawls(state, clock, *moments, **values):
    """Record crawls that began some hours before now, and took six minutes each."""
    plant(state, clock, {"files": {}})
    rows = [
        {
            **DEFAULTS["runs"],
            "id": number,
            "started_at": NOW - hours * HOUR,
            "ended_at": NOW - hours * HOUR + 360.0,
            **values,
        }
        for number, hours in enumerate(moments, 1)
    ]
    state.write(lambda connection: connection.execute(insert(runs), rows))


@pytest.mark.parametrize(
    ("moments", "gap"),
    [
        ([6, 4, 2], 2 * HOUR),
        ([30, 6, 4, 2], 2 * HOUR),  # one pause is no schedule
        ([6, 5.999, 4, 3.999, 2, 1.999], 2 * HOUR),  # of two that begin at once
        ([120 - 24 * day - late for day in range(5) for late in (0, 1)] + [0.2], 22.8 * HOUR),
        ([200, *range(24, 0, -2)], 2 * HOUR),  # of more than the last ten
        ([3], None),
    ],
)
def test_the_usual_gap_is_the_median_of_the_last_ones(state, clock, moments, gap):
    crawls(state, clock, *moments)
    (fact,) = facts(state, "crawls")
    assert fact["number"] == (None if gap is None else pytest.approx(gap, abs=5.0))
    assert fact["total"] == len(moments)


def test_crawls_of_two_spiders_have_gaps_of_their_own(state, clock):
    crawls(state, clock, 72, 48, 24)
    more = [
        {**DEFAULTS["runs"], "id": 10 + day, "spider": "llms", "started_at": NOW - day * 24 * HOUR}
        | {"ended_at": NOW - day * 24 * HOUR + HOUR}
        for day in (1, 2, 3)
    ]
    state.write(lambda connection: connection.execute(insert(runs), more))
    (fact,) = facts(state, "crawls")
    assert fact["number"] == 24 * HOUR


def test_an_earlier_crawl_that_was_killed_is_another_fact(state, clock):
    crawls(state, clock, 9, 4, 2, summary='{"fetched": 1}')
    state.write(
        lambda connection: connection.execute(
            runs.update().where(runs.c.id == 2).values(ended_at=None)
        )
    )
    (fact,) = facts(state, "killed")
    assert fact["subject"] == "2"
    assert facts(state, "last_crawl") == []


def test_sources_beyond_the_first_ones_are_counted(state, clock):
    plant(state, clock, {"files": {}})
    rows = [
        {**DEFAULTS["declared"], "url_key": number, "host": f"h{number:02}.example"}
        | {"url": f"http://h{number:02}.example/", "added_at": NOW - (200 + number) * HOUR}
        for number in range(MAX_SUBJECTS + 5)
    ]
    state.write(lambda connection: connection.execute(insert(declared), rows))
    found = facts(state, "unread")
    assert [row["subject"] for row in found] == [
        f"h{number:02}.example" for number in range(MAX_SUBJECTS + 4, 4, -1)
    ]
    assert {row["hosts"] for row in found} == {MAX_SUBJECTS + 5}


def test_sources_of_one_file_count_if_it_is_named(state, clock):
    plant(state, clock, {"files": {}, "declared": {"added_at": -999}})
    assert facts(state, "unread", terms=Terms(file=2)) == []
    assert len(facts(state, "unread", terms=Terms(file=1))) == 1
    assert len(facts(state, "unread", terms=Terms(file=1, min_revisit=60.0))) == 1
