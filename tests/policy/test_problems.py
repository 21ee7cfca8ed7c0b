"""Which facts are problems, of which level, and what a failed run is (decision 39)."""

from typing import get_args

import pytest

from tests.helpers import cases
from walsh_scrapy.crawl.scrapyinternals import EarlyEnd
from walsh_scrapy.policy.problems import (
    EARLY_ENDS,
    KINDS,
    MAX_SUBJECTS,
    SOURCE_PROBLEMS,
    Problem,
    Severity,
    advise_on_run,
    changed_since,
    describe_run_problem,
    in_order,
    problems_of,
    run_problem,
)

COLUMNS = ("subject", "since", "until", "age", "number", "total", "hosts", "reason")


def fact(code, **values):
    return {"code": code, **dict.fromkeys(COLUMNS), **values}


@cases("code", "values", "severity")
def test_a_fact_is_a_problem_of_one_level(code, values, severity):
    problems = list(problems_of([fact(code, **values)]))
    assert [problem.severity for problem in problems] == [severity] * bool(severity)
    for problem in problems:
        assert problem.is_urgent == (severity != "note")
        assert problem.problem
        assert problem.advice
        assert problem.code in KINDS


@cases("reason", "counts", "problem")
def test_a_run_fails_if_the_crawl_failed(reason, counts, problem):
    assert run_problem(reason, counts) == problem


def test_every_early_end_has_words():
    assert set(EARLY_ENDS) == set(get_args(EarlyEnd))


@pytest.mark.parametrize("problem", SOURCE_PROBLEMS)
def test_several_sources_with_a_problem_are_one_line(problem):
    values = {"reason": problem, "number": 3.0, "hosts": 2, "subject": "http://a.example/feed"}
    (note,) = problems_of([fact("sources", **values)])
    severity = "warning" if problem == "replaced" else "note"
    assert (note.severity, note.code, note.subject) == (severity, problem, None)
    assert note.problem.startswith("3 sources are ")


def test_more_hosts_than_are_named_are_counted():
    values = {"subject": "a.example", "number": 2.0, "age": 9e5, "hosts": MAX_SUBJECTS + 1}
    (problem,) = problems_of([fact("unread", **values)])
    assert problem.problem == "2 sources due, and not read for 10 d 10 h, as on 20 other hosts"


def test_the_worst_and_oldest_problems_come_first():
    problems = [
        Problem(Severity.NOTE, "hold", "a"),
        Problem(Severity.WARNING, "unread", "b", since="2026-05-02"),
        Problem(Severity.WARNING, "unread", "c", since="2026-05-01"),
        Problem(Severity.CRITICAL, "disk", "d"),
    ]
    assert [problem.problem for problem in in_order(problems)] == ["d", "c", "b", "a"]


def test_a_report_tells_what_began_and_what_ended():
    warning = {"severity": "warning"}
    old = {"code": "unread", "subject": "a.example", "problem": "for 7 d"} | warning
    same = {"code": "disk", "subject": "/", "problem": "500 MiB"} | warning
    new = {"code": "unread", "subject": "b.example", "problem": "for 7 d"} | warning
    changes = changed_since([old, same], [same | {"problem": "400 MiB"}, new])
    assert changes == [{"change": "began"} | new, {"change": "ended"} | old]
    worse = same | {"severity": "critical"}
    assert changed_since([same], [worse]) == [{"change": "began"} | worse]
    assert changed_since([worse], [same]) == []


def test_failing_sources_are_no_problem_if_nothing_was_read():
    facts = [
        fact("last_crawl", subject="7", reason="nothing_read"),
        fact("failing", number=9.0, total=9, hosts=9),
    ]
    assert [problem.code for problem in problems_of(facts)] == ["last_crawl"]
    assert [problem.code for problem in problems_of(facts[1:])] == ["failing"]


@pytest.mark.parametrize(
    ("problem", "undelivered", "words"),
    [
        (None, None, None),
        ("killed", None, "walsh new --run 7"),
        ("undelivered", 3, "walsh new --run 7"),
        ("state_failed", 3, "walsh new --run 7"),
        ("state_failed", 0, "Its log"),
        ("nothing_read", None, "walsh sources --failing"),
        ("no_blocklist", None, "Its log"),
    ],
)
def test_a_run_that_went_wrong_has_advice(problem, undelivered, words):
    advice = advise_on_run(problem, 7, undelivered)
    assert advice is None if words is None else words in advice
    assert problem is None or describe_run_problem(problem) != problem
