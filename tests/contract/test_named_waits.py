"""A source that its site keeps waiting is named everywhere: since when, until when, and why."""

from contextlib import closing

import pytest
from scrapy.settings import Settings

from tests.helpers.sites import IDENTITY, feed
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.options import Options
from walsh_scrapy.policy.advice import complete_source
from walsh_scrapy.policy.problems import problems_of
from walsh_scrapy.state import State
from walsh_scrapy.testing.simulation import EPOCH, simulate
from walsh_scrapy.testing.web import Fault, Reply, Site
from walsh_scrapy.tools.report import choose_period, gather
from walsh_scrapy.tools.why import read_account

HOUR = 3600.0
URL = "http://a.example/feed"
#: When the runs begin, and when somebody looks.
STARTS = (0.0, 3 * HOUR)
LOOK = EPOCH + 4 * HOUR
OPTIONS = Options.from_settings(Settings())
LONG = {"Retry-After": str(30 * 86_400)}


@pytest.mark.parametrize(
    ("robots", "page", "problem"),
    [
        (Reply(status=503), feed(host="a.example"), "robots"),
        (Reply(status=500), feed(host="a.example"), "robots"),
        (Reply(fault=Fault.RESET), feed(host="a.example"), "robots"),
        ("User-agent: *\nCrawl-delay: 1000000000000000\n", feed(host="a.example"), "delay"),
        ("", Reply(status=429, headers=LONG), "refused"),
        (Reply(status=503, headers=LONG), feed(host="a.example"), "refused"),
    ],
)
@pytest.mark.crawl
def test_a_source_that_waits_is_named_by_all(tmp_path, robots, page, problem):
    state_url = f"sqlite:///{tmp_path / 'walsh.sqlite3'}"
    simulate(
        Site("a.example", robots, {"/feed": page}),
        starts=STARTS,
        folder=tmp_path,
        sources=[URL],
        settings=IDENTITY | {"WALSH_STATE_URL": state_url},
    )
    with closing(State(state_url, clock=lambda: LOOK)) as state:
        (row,) = map(complete_source, state.rows("readable_sources"))
        notes = [note for note in problems_of(state.rows("problem_facts")) if note.code == problem]
        account = read_account(state, OPTIONS, "a.example")
        facts = gather(state, OPTIONS, notes, choose_period(state, LOOK, EPOCH), LOOK)
        runs = list(state.rows("readable_runs"))
        counted = Stores(state).sources.count_problems(1)
    assert row["problem"] == problem
    assert row["since"] < "2026-01-01T00:02:00Z", "the first run"
    assert row["next_visit"] > "2026-01-01T04:00:00Z"
    assert row["next_visit"] == row["refused_until"] or row["next_visit"] == "never"
    assert (row["next_visit"] == "never") is (problem == "delay")
    assert row["advice"]
    assert [note.subject for note in notes] == [URL]
    assert [visit["problem"] for visit in account.visits] == [problem]
    assert [failing["problem"] for failing in facts["failing"].rows] == [problem]
    assert counted == {problem: 1}
    assert [run["problem"] for run in runs] == [None, None], "one source alone is no failed run"
