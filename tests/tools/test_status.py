"""`walsh status`: what it adds to the problems of the state, and its exit statuses."""

import contextlib
import json
import os
import re
from functools import partial

import pytest
from sqlalchemy import update

from tests.helpers.records import hold
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.state import State
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.state.tables import declared, runs
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


def problems(called, status=1):
    """Return the rows that a call prints as JSON; its exit status is 1 for an urgent problem."""
    code, out, error = called
    assert (code, error) == (status, "")
    return [json.loads(line) for line in out.splitlines()]


def test_no_problem_is_one_line_with_the_last_end(well):
    code, out, error = well()
    assert (code, out.count("\n")) == (0, 1)
    assert "no problem" in error
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", error)
    assert well("--json") == (0, "", "")
    assert well("--quiet") == (0, "", "")


def hold_host(state_url):
    """Let the server of the source ask for nine days."""
    with contextlib.closing(State(state_url)) as state:
        hold(state, "blog.example", 9 * 86_400.0, "retry-after", 429)


def stop_crawls(state_url):
    """Let a week go by since the last crawl."""
    with contextlib.closing(State(state_url)) as state:
        earlier = update(runs).values(
            started_at=runs.c.started_at - 604_800, ended_at=runs.c.ended_at - 604_800
        )
        state.write(lambda connection: connection.execute(earlier))


def test_a_note_is_listed_and_is_no_reason_for_an_alarm(well, state_url):
    hold_host(state_url)
    (row,) = problems(well("--json"), status=0)
    assert (row["severity"], row["code"], row["subject"]) == ("note", "hold", "blog.example")
    assert "walsh" in row["command"]
    assert well("--quiet", "--json") == (0, "", "")


def test_an_urgent_problem_is_listed_before_notes(well, state_url):
    hold_host(state_url)
    stop_crawls(state_url)
    first, *others = problems(well("--json"))
    assert (first["severity"], first["code"]) == ("critical", "crawls_stopped")
    assert [row["severity"] for row in others] == ["note"]
    assert problems(well("--quiet", "--json")) == [first]


def test_since_last_prints_what_began_and_what_ended(well, state_url):
    daily = ("--since-last", "daily", "--json")
    assert well(*daily) == (0, "", "")
    hold_host(state_url)
    assert well(*daily) == (0, "", "")
    stop_crawls(state_url)
    (row,) = problems(well(*daily))
    assert (row["change"], row["code"]) == ("began", "crawls_stopped")
    assert well(*daily) == (0, "", "")
    (row,) = problems(well("--since-last", "weekly", "--json"))
    assert row["change"] == "began"
    with contextlib.closing(State(state_url)) as state:
        number = state.runs.begin(RunRecord(spider="feeds", started_at=state.now() - 60))
        state.runs.end(number, state.now() - 30, "finished", {"problem": ""})
    (row,) = problems(well(*daily), status=0)
    assert (row["change"], row["code"]) == ("ended", "crawls_stopped")
    code, out, error = well("--since-last", "daily", "--quiet")
    assert (code, out, error) == (0, "", "")


def test_since_last_says_that_nothing_changed(well):
    code, out, error = well("--since-last", "daily")
    assert (code, out) == (0, "change\tseverity\tsince\tsubject\tcommand\tproblem\n")
    assert "nothing began or ended" in error


def test_since_last_needs_a_state_that_can_be_written(well, tmp_path):
    well("--since-last", "daily")
    (tmp_path / "walsh.sqlite3").chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        code, out, error = well("--since-last", "daily")
    finally:
        tmp_path.chmod(0o700)
    if os.geteuid() != 0:  # root may write
        assert (code, out) == (3, "")
        assert "--since-last daily needs a role that may write" in error


def test_a_problem_that_goes_on_keeps_its_name(well, state_url):
    """What changes with time in its words is no new problem."""
    stop_crawls(state_url)
    first, second = problems(well("--json")), problems(well("--json"))
    assert [row["code"] for row in first] == [row["code"] for row in second]
    assert problems(well("--since-last", "x", "--json"))
    stop_crawls(state_url)
    assert well("--since-last", "x", "--json") == (0, "", "")


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
    assert (row["severity"], row["code"]) == ("warning", "no_crawl")


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
    stop_crawls(state_url)
    hold_host(state_url)
    rows = problems(well("--json", "--sources", "elsewhere.toml"))
    assert [row["severity"] for row in rows] == ["critical", "critical", "note"]
    assert rows[0].keys() == rows[1].keys() == rows[2].keys()


def test_each_file_has_problems_of_its_own(well, state_url, tmp_path):
    """Whichever was read last; without a name all count that were read lately."""
    (tmp_path / "other.toml").write_text('[[source]]\nurl = "http://other.example/feed"\n')
    with contextlib.closing(State(state_url)) as state:
        long_ago = update(declared).values(added_at=state.now() - 8 * 86_400)
        state.write(lambda connection: connection.execute(long_ago))
        Stores(state).sync(tmp_path / "other.toml", state.now())
    (row,) = problems(well("--json"))
    assert (row["code"], row["subject"]) == ("unread", "blog.example")
    assert problems(well("--json", "--sources", "sources.toml")) == [row]
    assert well("--json", "--sources", "other.toml") == (0, "", "")
    assert well("--json", "--sources", str(tmp_path / "other.toml")) == (0, "", "")


def test_a_wrong_setting_is_exit_status_3(status):
    code, out, error = status("-s", "WALSH_MIN_INTERVAL=-1")
    assert (code, out) == (3, "")
    assert "WALSH_MIN_INTERVAL" in error
