"""The rows of runs: their begin, their end, and those that have none."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scrapy.settings import Settings

from spiders.feeds import FeedsSpider
from walsh_scrapy.extensions.summary import command_of, settings_of
from walsh_scrapy.options import Options
from walsh_scrapy.sources.source import Source, declaration
from walsh_scrapy.state.documents import hash_of
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.tools.discover import DiscoverSpider
from walsh_scrapy.tools.mayfetch.probe import MayfetchSpider


@pytest.fixture
def runs(state):
    return state.runs


def test_a_run_has_its_begin_and_then_its_end(runs):
    begun = RunRecord(spider="feeds", begun=100.0, versions={"python": "3"}, settings={"x": True})
    summary = {"fetched": 2, "denied": {"robots": 1}}
    number = runs.begin(begun)
    assert runs.find(number) == replace(begun, id=number)
    assert not runs.find(number).is_over
    runs.end(number, 160.0, "finished", summary)
    ended = replace(begun, id=number, ended=160.0, how="finished", summary=summary)
    assert runs.find(number) == ended
    assert ended.is_over
    runs.end(number, 161.0, "why\0\ud800" + 300 * "y", {})
    assert runs.find(number).how.startswith("why\ufffd?yyy"), "a spider may name any reason"
    assert runs.find(number + 1) is None


def test_a_run_names_what_it_declared_and_the_copy_is_kept_once(runs, state):
    declared = declaration([Source("http://a.example/feed"), Source("http://b.example/", "llms")])
    begun = RunRecord(spider="feeds", begun=100.0, settings={"x": True})
    names = [runs.find(runs.begin(begun, each)).settings for each in (declared, declared, b"")]
    assert names == [{"x": True, "declared": hash_of(declared)}] * 2 + [{"x": True}]
    with state.log() as log:
        assert log.copy(hash_of(declared)) == b"feed http://a.example/feed\nllms http://b.example/"


def test_the_latest_runs_come_first(runs):
    numbers = [runs.begin(RunRecord(spider="feeds", begun=begun)) for begun in (20.0, 10.0, 30.0)]
    second, first, last = numbers
    assert [run.id for run in runs.latest(9)] == [last, second, first]
    assert [run.id for run in runs.latest(1)] == [last]
    assert [run.id for run in runs.latest(9, since=20.0)] == [last, second]


def test_the_settings_of_a_run_are_json_and_hold_no_password():
    given = {"WALSH_STATE_URL": "postgresql://us:secret@db.example/x", "WALSH_MAX_WAIT": "inf"}
    found = settings_of(Options.from_settings(Settings(given)), None)
    assert "secret" not in json.dumps(found, allow_nan=False)
    assert float(found["max_wait"]) > 1e300


def test_runs_of_commands_are_no_crawls(runs):
    crawl = runs.begin(RunRecord(spider="feeds", begun=10.0))
    for command in ("shell", "sources add"):
        runs.begin(RunRecord(spider="feeds", command=command, begun=20.0))
    assert [run.id for run in runs.latest(1, only_crawls=True)] == [crawl]
    assert [run.command for run in runs.latest(9)] == ["sources add", "shell", ""]


def test_runs_that_began_or_ended_after_a_moment_can_be_left_out(runs):
    numbers = [runs.begin(RunRecord(spider="feeds", begun=begun)) for begun in (9.0, 8.0, 7.0, 6.0)]
    runs.end(numbers[2], 11.0, "finished", {})
    runs.end(numbers[3], 8.5, "finished", {})
    assert [run.id for run in runs.latest(9, until=8.5)] == [numbers[1], numbers[3]]


@pytest.mark.parametrize("spider", [DiscoverSpider, MayfetchSpider, FeedsSpider])
@pytest.mark.parametrize("command", ["fetch", "parse", "check", "shell", ""])
def test_a_run_knows_the_command_that_asked_for_it(spider, command):
    """`fetch`, `parse` and `check` replace `start`, `shell` opens an engine without a crawl."""
    used = type(spider.__name__, (spider,), {})
    if command not in ("", "shell"):

        async def start(self):
            yield

        start.__module__ = f"scrapy.commands.{command}"
        used.start = start  # as the command does
    crawler = SimpleNamespace(crawling=command != "shell")
    own = "" if spider is FeedsSpider else spider.name
    assert command_of(crawler, object.__new__(used)) == (command or own)
