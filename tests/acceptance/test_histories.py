"""Histories by chance: crawls of a few simulated days, which a seed draws, judged three times.

`tests.acceptance.seeds` plays many more. What failed once is a case of `tests.acceptance.cases`.
"""

from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from tests.acceptance import randomdays
from tests.acceptance.judgedays import Oracle, all_seen
from tests.acceptance.playdays import Played, Run
from tests.acceptance.randomdays import (
    DAY,
    LIST_HOST,
    LIST_URL,
    Answer,
    Crawl,
    Days,
    Host,
    OptOuts,
    Phase,
    Robots,
    draw,
)
from tests.acceptance.seeds import written
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.simulation import EPOCH

SEEDS = 100
#: So many seeds are played by one process, which first imports all that a crawl needs.
STRETCH = 10
ON_POSTGRESQL = 6


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SEEDS, STRETCH))
def test_no_crawl_of_a_history_is_impolite(play, first):
    play(first, STRETCH)


@pytest.mark.long
@pytest.mark.postgresql
def test_none_is_impolite_on_postgresql(play, postgresql_server):
    play("--postgresql", 0, ON_POSTGRESQL)


def test_what_failed_once_does_not_fail_again(play):
    play("cases")


@pytest.fixture
def play(run_python, tmp_path):
    """Return a function that plays what its words say, and fails with the report of a failure."""

    def run(*words):
        options = [word for word in words if str(word).startswith("--")]
        others = [word for word in words if word not in options]
        done = run_python("-m", "tests.acceptance.seeds", *options, tmp_path, *others)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_a_seed_draws_the_same_days_each_time():
    assert draw(3) == draw(3) != draw(4)


def test_days_can_be_written_down_as_a_case():
    for days in map(draw, range(20)):
        assert eval(written(days), vars(randomdays)) == days


# What the oracle says of logs that are made up: it can accuse, and whom.

RULES = Robots(("/private/",), crawl_delay=10)
DAYS = Days(
    (Host("a.example", (Phase(0.0, RULES),), (("/feed", (Phase(0.0, Answer()),)),)),),
    (Phase(0.0, OptOuts(("b.example",))),),
    (),
)
FEED = "http://a.example/feed"


def hit(url, at, status=200, took=0.1, sent=(), **answer):
    """Return an exchange that began at a moment."""
    parts = urlsplit(url)
    fields = tuple((name.replace("_", "-"), value) for name, value in answer.items())
    return Hit(
        at, at + took, EPOCH + at, "GET", "http", parts.hostname, 80, parts.path, sent,
        status=status, answer=fields, complete=True,
    )  # fmt: skip


POLITE = (
    hit(f"http://{LIST_HOST}/robots.txt", 0.0),
    hit(LIST_URL, 1.1),
    hit("http://a.example/robots.txt", 1.2),
    hit(FEED, 12.0),
)
REFUSED = (*POLITE[:3], hit(FEED, 12.0, 503, Retry_After="60"))
WITH_ETAG = (*POLITE[:3], hit(FEED, 12.0, ETag='"1"'))


def accused(*runs, aheads=(0.0, 0.0), is_killed=False):
    """Return the rules that the oracle finds broken by the logs of some runs."""
    played = Played(DAYS, "")
    forward = backward = 0.0
    for log, ahead, before in zip(runs, aheads, (aheads[0], *aheads), strict=False):
        forward += max(0.0, ahead - before)
        backward += max(0.0, before - ahead)
        crawl = Crawl(0.0, (FEED,), ahead=ahead)
        started, ended = log[0].started, log[-1].ended
        run = Run(crawl, started, ended, is_killed and log is runs[0], tuple(log), ())
        played.runs.append(replace(run, forward=forward, backward=backward))
    oracle = Oracle(played)
    for seen in all_seen(played.runs):
        oracle.see(seen)
    return {fault.split(":")[0] for fault in oracle.faults}


@pytest.mark.parametrize(
    ("log", "rules"),
    [
        (POLITE, set()),
        ((*POLITE[:3], hit(FEED, 6.0)), {"R4"}),
        ((*POLITE[:3], hit(FEED, 1.25)), {"R4"}),
        ((*POLITE, hit("http://a.example/private/feed", 30.0)), {"R2", "R6"}),
        ((*POLITE[:2], POLITE[3]), {"R2"}),
        ((*POLITE[2:],), {"R3"}),
        ((*POLITE, hit("http://www.b.example/robots.txt", 14.0)), {"R3"}),
        (REFUSED, set()),
        ((*REFUSED, hit(FEED, 72.2)), set()),
        ((*REFUSED, hit(FEED, 72.0)), {"R5"}),
        ((*POLITE, hit(f"{FEED}/1", 30.0)), {"R6"}),
        ((*WITH_ETAG, hit(FEED, 13.0 + DAY, sent=(("If-None-Match", '"2"'),))), {"R3", "R7"}),
        ((*POLITE, hit(FEED, 4000.0)), {"R8"}),
    ],
)  # fmt: skip
def test_the_oracle_accuses_a_forged_log(log, rules):
    assert accused(log) == rules


def test_a_clock_that_was_set_forward_ends_a_hold():
    later = [hit(FEED, 40.0, 503)]
    assert accused(REFUSED, later) == {"R5"}
    assert accused(REFUSED, later, aheads=(0.0, 30.0)) == {"R5"}
    assert accused(REFUSED, later, aheads=(0.0, 33.0)) == set()
    assert accused(REFUSED, later, aheads=(0.0, -33.0)) == {"R5"}


def test_nobody_knows_what_came_just_before_a_kill():
    later = [hit(FEED, 40.0, 503)]
    assert accused(REFUSED, later, is_killed=True) == set()
