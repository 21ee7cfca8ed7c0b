"""One definition: whoever counts the problems of drawn states gets the same numbers."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings
from sqlalchemy import delete, insert

from tests.helpers.planted import DEFAULTS, HOUR, NOW
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.options import Options
from walsh_scrapy.policy.advice import complete_source
from walsh_scrapy.policy.problems import SOURCE_PROBLEMS, problems_of
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.state.sql import NO_TERMS
from walsh_scrapy.state.tables import declared, files, sources
from walsh_scrapy.tools.report import choose_period, gather
from walsh_scrapy.tools.status import read_values
from walsh_scrapy.tools.why import read_account

OPTIONS = Options.from_settings(Settings())
#: What a source with each problem has in the state; None is well.
ROWS = {
    None: {},
    "gone": {"outcome": "gone", "status": 410, "not_before": float("inf"), "failures": 1},
    "failing": {"outcome": "failed", "failures": 2, "failing_since": NOW - HOUR},
    "replaced": {"outcome": "replaced", "failures": 1, "failing_since": NOW - 2 * HOUR},
    "refused": {"outcome": "refused", "status": 429, "refused_since": NOW - HOUR},
    "robots": {"outcome": "robots.txt unavailable", "refused_since": NOW - HOUR},
    "delay": {"outcome": "delay too long", "refused_since": NOW - HOUR},
    "denied": {"outcome": "denied by robots"},
    "moved": {"moved_to": "http://new.example/", "moved_since": NOW, "move_settled": True},
    "resent": {"resent": 3},
}
SOURCES = st.lists(
    st.tuples(st.sampled_from(list(ROWS)), st.sampled_from(["a", "b"]), st.booleans()),
    min_size=8,
    max_size=20,
)


def write(state, drawn):
    """Replace the sources of a state by drawn ones: problem, host, and whether it is declared."""
    rows, declarations = [], []
    for number, (problem, name, is_declared) in enumerate(drawn):
        place = {"url_key": number, "kind": "feed", "url": f"http://{name}.example/{number}"}
        visited = {"visited_at": NOW - HOUR, "not_before": NOW, "outcome": "fetched"}
        rows.append(
            {**dict.fromkeys(set().union(*ROWS.values())), "failures": 0, "resent": 0}
            | {"move_settled": False, "read_at": NOW - HOUR, **place, **visited, **ROWS[problem]}
        )
        if is_declared:
            values = {**DEFAULTS["declared"], **place, "host": f"{name}.example"}
            declarations.append(values | {"added_at": NOW - HOUR})

    def replace(connection):
        for table in (declared, sources, files):
            connection.execute(delete(table))
        connection.execute(insert(files), {**DEFAULTS["files"], "read_at": NOW})
        for table, values in ((sources, rows), (declared, declarations)):
            if values:
                connection.execute(insert(table), values)

    state.write(replace)


def test_every_problem_is_drawn():
    assert set(ROWS) == {None, *SOURCE_PROBLEMS}


@pytest.fixture
def state(state, clock):
    clock.at = NOW
    return state


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=SOURCES)
@example(drawn=[])
def test_all_count_the_same_problems(state, drawn):
    write(state, drawn)
    expected = Counter(problem for problem, _, is_declared in drawn if is_declared and problem)
    # `walsh sources`, also as JSON
    rows = [complete_source(row) for row in state.rows("readable_sources", where="is_declared")]
    assert Counter(row["problem"] for row in rows if row["problem"]) == expected
    assert all((row["advice"] is None) == (row["problem"] is None) for row in rows)
    # `walsh status`
    problems = list(problems_of(state.rows("problem_facts")))
    notes = {note.code: note.problem.split()[0] for note in problems if note.code in ROWS}
    assert notes == {problem: str(number) for problem, number in expected.items()}
    # the metrics
    values = read_values(state, [NO_TERMS])
    by_problem = {problem: values.get(("sources", problem), 0) for problem in ROWS}
    assert Counter(by_problem) == expected
    # the summary of a run
    assert Stores(state).sources.count_problems(1) == expected
    # the page
    facts = gather(state, OPTIONS, problems, choose_period(state, NOW), NOW)
    assert facts["failing"].count == expected.total()
    assert Counter(row["problem"] for row in facts["failing"].rows) == expected
    listed = {row["code"] for row in facts["problems"].rows}
    assert listed & set(ROWS) == set(expected)
    # `walsh why`
    explained = Counter()
    for host in {f"{name}.example" for _, name, is_declared in drawn if is_declared}:
        explained.update(visit["problem"] for visit in read_account(state, OPTIONS, host).visits)
    del explained[None]
    assert explained == expected


def test_a_run_is_judged_once(state):
    """Its summary says what went wrong, and the view, the command and the page say the same."""
    number = state.runs.begin(RunRecord(spider="feeds", started_at=NOW - 90.0))
    state.runs.end(number, NOW - 60.0, "finished", {"problem": "nothing_read"})
    (row,) = state.rows("readable_runs")
    assert row["problem"] == "nothing_read"
    (problem,) = problems_of(
        fact for fact in state.rows("problem_facts") if fact["code"] == "last_crawl"
    )
    assert problem.severity == "critical"
    assert problem.problem.startswith(f"run {number}, ")
