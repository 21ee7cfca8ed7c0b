"""`walsh status --prometheus`: every series is always there, and names its project."""

import contextlib
import inspect
import re
from dataclasses import replace
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families
from scrapy.settings import Settings
from sqlalchemy import update

from tests.helpers.records import RECORD, commit, entry_of, hold, log_requests
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy import problems as policy_problems
from walsh_scrapy.policy.problems import KINDS, SOURCE_PROBLEMS, Problem, Severity
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.state.tables import declared
from walsh_scrapy.testing.crawl import keep_empty_blocklist
from walsh_scrapy.tools import status
from walsh_scrapy.tools.status import count_problems, project_name, write_metrics

DAY = 86_400.0
FEED = "http://blog.example/feed"


def series(file):
    """Return the samples of a file, by their names and all labels."""
    samples = [
        ((sample.name, *sample.labels.values()), sample.value)
        for family in text_string_to_metric_families(file.read_text("utf-8"))
        for sample in family.samples
    ]
    assert len(dict(samples)) == len(samples)
    return dict(samples)


def values_of(file):
    """Return the values of a file by name and label, without the project."""
    return {(name, *labels): value for (name, _, *labels), value in series(file).items()}


@pytest.fixture
def measure(called, url, tmp_path):
    """Return a function that calls the command on a state, and returns the values of its file."""

    def call(*words, **settings):
        file = tmp_path / "walsh.prom"
        called("status", "--prometheus", file, *words, **{"WALSH_STATE_URL": url} | settings)
        return values_of(file)

    return call


@pytest.fixture
def state(url):
    keep_empty_blocklist(url)
    with contextlib.closing(State(url)) as opened:
        yield opened


def run(state, ago, seconds=60.0, command="", **summary):
    """Record a run that ended some seconds ago."""
    ended_at = state.now() - ago
    begun = RunRecord(spider="feeds", command=command, started_at=ended_at - seconds)
    state.runs.end(state.runs.begin(begun), ended_at, "finished", summary)


def declare(state, file, *urls):
    file.write_text("".join(f"{url}\n" for url in urls))
    Stores(state).sync(file, state.now())


def test_the_last_good_run_is_a_crawl_without_a_problem(measure, state):
    run(state, 7200.0)
    run(state, 3600.0, seconds=90.0, problem="nothing_read")
    run(state, 60.0, command="mayfetch")
    values = measure()
    written_at = values["walsh_status_timestamp_seconds",]
    assert written_at - values["walsh_last_good_run_timestamp_seconds",] == pytest.approx(7200, 0.1)
    assert values["walsh_last_run_duration_seconds",] == pytest.approx(90.0)


def test_requests_of_the_last_day_are_counted_by_status(measure, state):
    sent = replace(RECORD, requested_at=state.now() - 3600.0)
    statuses = (200, 206, 301, 304, 404, 429, 429, 500, 503, 999, None)
    log_requests(state, *(replace(sent, status=status) for status in statuses))
    log_requests(state, replace(sent, requested_at=state.now() - 1.1 * DAY))
    values = measure()
    counts = {status: value for (name, *labels), value in values.items() for status in labels
              if name == "walsh_requests_last_day"}  # fmt: skip
    assert counts.pop("2xx") == counts.pop("429") == 2
    assert counts == dict.fromkeys(("3xx", "304", "4xx", "5xx", "503", "other", "none"), 1)


def test_new_entries_are_those_of_the_last_day(measure, state):
    now = state.now()
    source = SourceRecord(url=FEED, kind="feed", format="rss20")
    commit(state, source, [entry_of(FEED, "first", at=now - 60.0)])
    found = [entry_of(FEED, "new", at=now - 60.0), entry_of(FEED, "old", at=now - 2 * DAY)]
    commit(state, source, found)
    assert measure()["walsh_new_entries_last_day",] == 1


def test_sources_of_all_files_are_counted(measure, state, tmp_path):
    declare(state, tmp_path / "one.txt", FEED, "http://b.example/feed")
    long_ago = update(declared).values(added_at=state.now() - 2 * DAY)
    state.write(lambda connection: connection.execute(long_ago))
    declare(state, tmp_path / "two.txt", "http://c.example/feed")
    failed = {"outcome": "failed", "failures": 2, "failing_since": 1.0, "not_before": 1.0}
    commit(state, SourceRecord(url=FEED, kind="feed", visited_at=state.now() - 60, **failed))
    values = measure()
    assert (values["walsh_sources", "failing"], values["walsh_sources", "none"]) == (1, 2)
    assert (values["walsh_sources_due",], values["walsh_sources_overdue",]) == (2, 1)
    assert measure("--sources", tmp_path / "two.txt")["walsh_sources", "none"] == 1


def test_a_source_that_has_to_wait_is_not_overdue(measure, state, tmp_path):
    declare(state, tmp_path / "one.txt", FEED)
    visited = {"visited_at": state.now() - 3 * DAY, "outcome": "fetched", "not_before": 1.0}
    commit(state, SourceRecord(url=FEED, kind="feed", **visited))
    assert measure()["walsh_sources_overdue",] == 1
    hold(state, "blog.example", 7200.0, "retry-after", 429)
    values = measure()
    assert (values["walsh_sources_due",], values["walsh_sources_overdue",]) == (1, 0)
    assert (values["walsh_hosts", "hold"], values["walsh_hosts", "none"]) == (1, 0)


def test_problems_are_counted_by_kind_and_severity(measure, state, tmp_path):
    run(state, 8 * DAY, seconds=60.0)
    values = measure("--sources", tmp_path / "nowhere.toml")
    assert values["walsh_problems", "crawls_stopped", "critical"] == 1
    assert values["walsh_problems", "files", "critical"] == 1
    assert values["walsh_problems", "crawls_stopped", "warning"] == 0


@pytest.mark.empty
@pytest.mark.parametrize("contents", [None, b"this was a database once " * 100])
def test_without_a_state_every_series_is_there(called, tmp_path, contents):
    """Also if it cannot be used, or if a setting is wrong."""
    file = tmp_path / "walsh.prom"
    setting = f"sqlite:///{tmp_path / 'walsh.sqlite3'}"
    call = partial(called, "status", "--prometheus", file, WALSH_STATE_URL=setting)
    if contents:
        (tmp_path / "walsh.sqlite3").write_bytes(contents)
    call()
    missing = values_of(file)
    (tmp_path / "walsh.sqlite3").unlink(missing_ok=True)
    assert call("-s", "WALSH_MIN_INTERVAL=-1")[0] == 3
    wrong = values_of(file)
    State(setting).close()
    call()
    assert missing.keys() == wrong.keys() == values_of(file).keys()
    assert wrong["walsh_problems", "state", "critical"] == 1
    assert missing["walsh_problems", "state" if contents else "no_state",
                   "critical" if contents else "warning"] == 1  # fmt: skip
    assert missing["walsh_last_good_run_timestamp_seconds",] == 0


def test_files_of_two_projects_have_no_series_in_common(called, tmp_path):
    files = [tmp_path / "one.prom", tmp_path / "two.prom"]
    for file in files:
        called("status", "--prometheus", file, "-s", f"BOT_NAME={file.stem}")
    one, two = map(series, files)
    assert not one.keys() & two.keys()
    assert {labels[1] for labels in one} == {"one"}
    heads = [[line for line in file.read_text().splitlines() if line[0] == "#"] for file in files]
    assert heads[0] == heads[1]


def test_a_project_is_named_by_its_bot_or_its_folder(tmp_path, monkeypatch):
    (tmp_path / "scrapy.cfg").touch()
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert project_name(Settings()) == tmp_path.name
    (tmp_path / "scrapy.cfg").unlink()
    assert project_name(Settings()) == "inner"
    assert project_name(Settings({"BOT_NAME": "shop"})) == "shop"


def test_any_name_of_a_project_is_quoted(tmp_path):
    name = 'a "b" \\ c\nd'
    write_metrics(str(tmp_path / "x.prom"), name, {})
    assert {labels[1] for labels in series(tmp_path / "x.prom")} == {name}


def test_problems_of_one_kind_are_counted_together():
    one = Problem(Severity.NOTE, "hold", "", "a.example")
    assert count_problems([one, one]) == {("problems", "hold", "note"): 2}


def test_every_problem_is_of_a_kind_with_series():
    sources = "".join(inspect.getsource(module) for module in (status, policy_problems))
    codes = re.findall(r'Problem\(\s*[\w.]+,\s*"(\w+)"', sources)
    assert len(codes) > 10
    assert set(codes) | set(SOURCE_PROBLEMS) == set(KINDS)
    assert len(set(KINDS)) == len(KINDS)


def test_metrics_that_cannot_be_written_are_a_wrong_call(called):
    code, _, error = called("status", "--prometheus", "nowhere/walsh.prom")
    assert code == 2
    assert "--prometheus nowhere/walsh.prom" in error


def test_metrics_are_written_before_a_report_that_fails(called, tmp_path, monkeypatch):
    """A role that only reads cannot use --since-last, and its monitor needs the numbers."""
    setting = f"sqlite:///{tmp_path / 'walsh.sqlite3'}"
    State(setting).close()

    def refuse(*_):
        from walsh_scrapy.tools.call import Unusable

        raise Unusable("read-only")

    monkeypatch.setattr("walsh_scrapy.tools.status._change_report", refuse)
    file = tmp_path / "walsh.prom"
    words = ("status", "--prometheus", file, "--since-last", "cron")
    assert called(*words, WALSH_STATE_URL=setting)[0] == 3
    assert values_of(file)["walsh_problems", "no_crawl", "warning"] == 1
