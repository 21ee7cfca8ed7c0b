"""`walsh status`: what it adds to the problems of the state, its exit statuses, and metrics."""

import contextlib
import json
import re
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.records import commit, hold
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.testing.crawl import keep_empty_blocklist
from walsh_scrapy.tools import status as module

URL = "http://blog.example/feed"


@pytest.fixture
def state_url(tmp_path):
    return f"sqlite:///{tmp_path / 'walsh.sqlite3'}"


@pytest.fixture
def status(called, state_url, monkeypatch):
    """Run the command in a folder of its own, whatever room this machine has."""
    monkeypatch.setattr(module, "MIN_DISK_MIB", 0)
    return partial(called, "status", WALSH_STATE_URL=state_url)


@pytest.fixture
def well(status, state_url, tmp_path):
    """Return the same command, on a state without a problem."""
    (tmp_path / "sources.toml").write_text(f'[[source]]\nurl = "{URL}"\n')
    with contextlib.closing(State(state_url)) as state:
        Stores(state).sync(tmp_path / "sources.toml", state.now())
        number = state.runs.begin(RunRecord(spider="feeds", started_at=state.now() - 60))
        state.runs.end(number, state.now() - 30, "finished", {"fetched": 1})
    keep_empty_blocklist(state_url)
    return status


def problems(called):
    """Return the rows that a call prints as JSON; it has found a problem."""
    code, out, error = called
    assert (code, error) == (1, "")
    return [json.loads(line) for line in out.splitlines()]


def metrics(file):
    """Return the values of a file of metrics by name and label."""
    samples = [
        sample
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    ]
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


def test_no_problem_is_one_line_with_the_last_end(well):
    code, out, error = well()
    assert (code, out.count("\n")) == (0, 1)
    assert "no problem" in error
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", error)
    assert well("--json") == (0, "", "")
    assert well("--quiet") == (0, "", "")


def test_problems_of_the_state_are_listed(well, state_url):
    with contextlib.closing(State(state_url)) as state:
        hold(state, "busy.example", 9 * 86_400.0, "retry-after", 429)
    (row,) = problems(well("--json"))
    assert (row["severity"], row["subject"]) == ("warning", "busy.example")
    assert "walsh" in row["command"]
    assert problems(well("--quiet", "--json")) == [row]


def test_a_list_that_cannot_be_used_is_critical(well):
    (row,) = problems(well("--json", "-s", "WALSH_BLOCKLIST_FILE=nowhere.txt"))
    assert (row["severity"], row["subject"]) == ("critical", "nowhere.txt")
    assert "No such file" in row["problem"]


@pytest.mark.parametrize("setting", ["ADDONS={}", "WALSH_ENABLED=False"])
def test_a_project_without_the_add_on_is_critical(well, setting):
    (row,) = problems(well("--json", "-s", setting))
    assert (row["severity"], row["subject"]) == ("critical", "ADDONS")


def test_a_project_with_one_middleware_alone_is_well(well):
    table = f'DOWNLOADER_MIDDLEWARES={{"{Gate.PACING.path}": 890}}'
    assert well("-s", "ADDONS={}", "-s", table, "--json") == (0, "", "")


def test_a_sources_file_that_cannot_be_used_is_critical(well, tmp_path):
    (row,) = problems(well("--json", "--sources", "elsewhere.toml"))
    assert (row["severity"], row["subject"]) == ("critical", "elsewhere.toml")
    (tmp_path / "sources.toml").write_text("[[source]]\nurl = 7\n")
    (row,) = problems(well("--json"))
    assert (row["severity"], row["subject"]) == ("critical", "sources.toml")


def test_a_project_without_sources_needs_no_file(status, state_url):
    with contextlib.closing(State(state_url)):
        pass
    keep_empty_blocklist(state_url)
    (row,) = problems(status("--json"))
    assert row["problem"] == "no crawl is recorded"


@pytest.mark.parametrize(("free", "severity"), [(500, "warning"), (50, "critical")])
def test_a_disk_that_is_nearly_full_is_a_problem(well, monkeypatch, free, severity):
    usage = shutil_usage(free)
    monkeypatch.setattr(module, "MIN_DISK_MIB", 1024)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    (row,) = problems(well("--json"))
    assert row["severity"] == severity
    assert f"{free} MiB" in row["problem"]


def shutil_usage(mib):
    class Usage:
        free = mib * 1024 * 1024

    return Usage


@pytest.mark.parametrize(("file", "spider"), [("sources.toml", "feeds"), ("other.txt", "SPIDER")])
def test_without_a_state_a_crawl_is_to_be_started(status, tmp_path, file, spider):
    (tmp_path / file).write_text('[[source]]\nurl = "http://a.example/"\n')
    (row,) = problems(status("--json"))
    assert (row["severity"], row["command"]) == ("warning", f"scrapy crawl {spider}")
    assert not (tmp_path / "walsh.sqlite3").exists()


def test_every_problem_has_the_same_columns(well, state_url):
    with contextlib.closing(State(state_url)) as state:
        hold(state, "busy.example", 9 * 86_400.0, "retry-after", 429)
    rows = problems(well("--json", "--sources", "elsewhere.toml"))
    assert [row["severity"] for row in rows] == ["critical", "warning"]
    assert rows[0].keys() == rows[1].keys()


def test_metrics_count_the_rows_of_the_views(well, state_url, tmp_path):
    with contextlib.closing(State(state_url)) as state:
        failed = {"outcome": "failed", "failures": 2, "failing_since": 1.0}
        commit(state, SourceRecord(url=URL, kind="feed", visited_at=state.now() - 60, **failed))
        hold(state, "busy.example", 9 * 86_400.0, "retry-after", 429)
    file = tmp_path / "walsh.prom"
    assert well("--prometheus", file)[0] == 1
    values = metrics(file)
    assert values["walsh_problems", "critical"] == 1
    assert values["walsh_problems", "warning"] == 1
    assert values["walsh_sources", "failing"] == 1
    assert values["walsh_hosts", "hold"] == 1
    assert values["walsh_runs", "ended"] == 1


def test_metrics_of_a_state_without_problems_are_zero(well, tmp_path):
    file = tmp_path / "walsh.prom"
    assert well("--prometheus", file)[0] == 0
    values = metrics(file)
    assert (values["walsh_problems", "critical"], values["walsh_problems", "warning"]) == (0, 0)
    assert values["walsh_sources", "none"] == 1


def test_a_state_that_cannot_be_read_is_critical_for_a_monitor(status, tmp_path):
    file = tmp_path / "walsh.prom"
    (tmp_path / "walsh.sqlite3").write_bytes(b"this was a database once " * 100)
    code, out, error = status("--prometheus", file)
    assert (code, out) == (3, "")
    assert "walsh.sqlite3" in error
    assert metrics(file)["walsh_problems", "critical"] == 1


def test_a_wrong_setting_is_exit_status_3(status):
    code, out, error = status("-s", "WALSH_MIN_INTERVAL=-1")
    assert (code, out) == (3, "")
    assert "WALSH_MIN_INTERVAL" in error


def test_metrics_that_cannot_be_written_are_a_wrong_call(well):
    code, _, error = well("--prometheus", "nowhere/walsh.prom")
    assert code == 2
    assert "--prometheus nowhere/walsh.prom" in error
