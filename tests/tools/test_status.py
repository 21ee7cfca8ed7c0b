"""`walsh status`: what each check makes of the facts, and how that is told."""

import contextlib
import json
import logging
import math
from dataclasses import replace
from functools import partial

import pytest
from scrapy.settings import Settings

from tests.helpers import cases
from tests.helpers.records import RECORD, commit, hold, log_requests
from walsh_scrapy.crawl.outcome import after_refusal
from walsh_scrapy.options import Options
from walsh_scrapy.policy.pacing import HostTimes
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state import State
from walsh_scrapy.state.hosts import HostSnapshot, Worker, WorkerRow, beat
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.testing.crawl import keep_empty_blocklist
from walsh_scrapy.tools.hosts import HostRow
from walsh_scrapy.tools.runs import RunRow
from walsh_scrapy.tools.sources.overview import NextVisit, SourceRow
from walsh_scrapy.tools.status import findings
from walsh_scrapy.tools.status.facts import Facts, gather
from walsh_scrapy.tools.status.findings import (
    Finding,
    Limits,
    Status,
    Thresholds,
    find,
    status_json,
    status_lines,
    worst,
    write_metrics,
)

OK, WARNING, CRITICAL = Status.OK, Status.WARNING, Status.CRITICAL
HOUR, DAY = 3600.0, 86_400.0
MIB = 1024 * 1024
NOW = 1_800_000_000.0
WELL = Facts(
    now=NOW,
    first_run=NOW - 9 * DAY,
    good_run=NOW - 2 * HOUR,
    list_checked=NOW - HOUR,
    list_refresh=6 * HOUR,
    sources=200,
    failing=3,
    disk="/srv/walsh",
    disk_free=5000 * MIB,
    latest={"requests": NOW},
)


def held(host="busy.example", *, days, is_unreachable=False):
    by = "unreachable" if is_unreachable else "backoff"
    until = NOW - HOUR + days * DAY
    times = HostTimes(hold_since=NOW - HOUR, hold_until=until, hold_by=by)
    return HostRow(host, HostSnapshot(times, NOW), None)


DAY_4, DAY_3, TOMORROW = (f"2027-01-{day} 08:00:00 UTC" for day in (11, 12, 16))


def refused(*hosts, days, until=None):
    busy = {"outcome": "refused", "status": 429, "refused_since": NOW - days * DAY}
    records = (SourceRecord(url=f"http://{host}/", kind="feed", **busy) for host in hosts)
    return tuple(row_of(each, until) for each in records)


def row_of(record, until=None):
    return SourceRow(None, record, NextVisit(until, "server", ""), 0, None, host_of(record.url))


def silent(hours, wait=900.0):
    record = RunRecord(spider="feeds", started_at=NOW - 50 * HOUR, settings={"max_wait": wait})
    return (RunRow(record, NOW - hours * HOUR, NOW),)


def ended(how):
    return RunRow(
        RunRecord(spider="feeds", started_at=NOW - HOUR, ended_at=NOW, finish_reason=how), NOW, NOW
    )


FOUR_DAYS = refused("e", days=4, until=NOW + DAY)
MANY = (
    f"6 sources refused for over a day: e (429) since {DAY_4} until {TOMORROW}, "
    f"a (429) since {DAY_3}, b (429) since {DAY_3} … and 2 more"
)
NEVER_RAN = {"first_run": None, "good_run": None}
FUTURE_ONLY = "no crawl is recorded but such that lie in the future"


@cases(
    "check",
    "changes",
    "status",
    "words",
    more=[
        ("run", {"good_run": None}, "CRITICAL", "no run has ended well since 20"),
        ("run", {"good_run": None, "first_run": 1}, "OK", "no run has ended well since"),
        ("run", NEVER_RAN, "WARNING", "no crawl is recorded"),
        ("run", NEVER_RAN | {"latest": {"runs": NOW + DAY}}, "WARNING", FUTURE_ONLY),
        ("run", {"bad_run": ended("state_failed")}, "WARNING", "failed, feeds: state_failed"),
        ("run", {"open_runs": silent(0)}, "OK", "feeds began 2 d 2 h ago"),
        ("killed", {"open_runs": silent(0.4)}, "OK", "no run"),
        ("killed", {"open_runs": silent(0.6)}, "WARNING", "1 run did not end: feeds began at 20"),
        ("killed", {"open_runs": silent(20, wait=math.inf)}, "OK", "no run"),
        ("killed", {"open_runs": silent(25, wait=math.inf)}, "WARNING", "1 run"),
        ("killed", {"open_runs": silent(49)}, "OK", "no run"),
        ("blocklist", {"list_checked": None}, "WARNING", "none was adopted"),
        ("refused", {"refused": refused("a.example", days=0.5)}, "OK", "1 source refused"),
        ("refused", {"refused": refused(*"abcdd", days=3) + FOUR_DAYS}, "WARNING", MANY),
        ("hosts", {"held": (held(days=1),)}, "OK", "none is on hold for over a day, 1 on hold"),
        ("hosts", {"held": (held(days=2),)}, "WARNING", "1 host on hold for over a day: busy.ex"),
        ("hosts", {"held": (held(days=9, is_unreachable=True),)}, "OK", "1 on hold in all"),
        ("clock", {"latest": {"runs": NOW + HOUR}}, "OK", "no time"),
        ("clock", {"latest": {"runs": NOW + 3 * DAY, "hosts": NOW}}, "WARNING", "times of runs"),
    ],
)
def test_each_check(check, changes, status, words):
    """Moments are in hours before now, and room on the disk in MiB."""
    facts = dict(changes)
    for name in {"good_run", "first_run", "list_checked"} & facts.keys():
        facts[name] = None if facts[name] is None else NOW - facts[name] * HOUR
    if "disk_free" in facts:
        facts["disk_free"] *= MIB
    found = find(replace(WELL, **facts), Thresholds())
    (one,) = (each for each in found if each.check == check)
    assert one.status is Status[status]
    assert words in one.what
    assert bool(one.advice) == bool(one.status)
    assert worst(found) is one.status
    assert found[0].status is one.status, "the worst is the first"


def test_a_finding_about_runs_has_their_rows():
    facts = replace(WELL, bad_run=ended("state_failed"), open_runs=silent(0.6))
    rows = {each.check: each.rows for each in find(facts, Thresholds())}
    assert [row["problem"] for row in rows["run"]] == [
        "state_failed",
        "did not end, last sign at 2027-01-15 07:24:00 UTC",
    ]
    assert rows["killed"] == rows["run"][1:]


def test_what_cannot_be_known_is_no_finding():
    facts = Facts(now=NOW, has_blocklist=False, latest={})
    assert [each.check for each in find(facts, Thresholds())] == ["run", "killed", "hosts", "clock"]


def test_the_operator_sets_the_limits():
    found = find(WELL, Thresholds(Limits(1, 3), Limits(1, 9)))
    judged = {each.check: each.status for each in found if each.status}
    assert judged == {"run": WARNING, "sources": WARNING}


def test_the_lines_fit_whatever_the_state_has():
    held_hosts = tuple(held(f"\x1b[2J{number}.example", days=300) for number in range(10_000))
    facts = replace(WELL, held=held_hosts, sources_error="a\nb\u202e")
    first, *lines = status_lines(find(facts, Thresholds()))
    assert first == "CRITICAL: sources, hosts"
    assert [line.split()[:2] for line in lines[:2]] == [
        ["CRITICAL", "sources"],
        ["WARNING", "hosts"],
    ]
    assert len(lines) == 7
    assert all(line.isprintable() and len(line) < 270 for line in lines)
    assert "… and 9,997 more" in lines[1]
    assert next(iter(status_lines(find(WELL, Thresholds())))) == "OK: all is well"
    told = json.loads(status_json(find(facts, Thresholds()), NOW))
    assert (told["status"], told["exit"], told["at"]) == ("CRITICAL", 1, "2027-01-15T08:00:00Z")
    assert told["findings"][0] == {
        "status": "CRITICAL",
        "check": "sources",
        "what": "a\\nb\\u202e",
        "advice": "no run can start",
        "rows": [],
    }
    assert len(told["findings"][1]["rows"]) == 100


def test_unknown_is_not_hidden_and_hides_nothing():
    unknown = Finding(Status.UNKNOWN, "state", "it is locked")
    assert worst([unknown]) is Status.UNKNOWN
    assert worst([unknown, Finding(CRITICAL, "disk", "full")]) is CRITICAL
    assert worst([]) is OK


def metrics_of(path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_the_metrics_are_those_of_the_documentation(tmp_path):
    file = tmp_path / "walsh.prom"
    facts = replace(
        WELL,
        held=(held(days=2),),
        open_runs=silent(1),
        latest={"runs": NOW + 60},
        refused=refused("a.example", days=2),
        workers=(WorkerRow(7, NOW, 3), WorkerRow(8, NOW, 4)),
    )
    write_metrics(str(file), find(facts, Thresholds()), facts, NOW)
    found = metrics_of(file)
    checks = {name: found.pop(name) for name in list(found) if name.startswith("walsh_check{")}
    assert checks['walsh_check{check="hosts"}'] == checks['walsh_check{check="killed"}'] == 1
    assert len(checks) == 9
    assert found == {
        "walsh_status": 1,
        "walsh_status_timestamp_seconds": NOW,
        "walsh_last_good_run_timestamp_seconds": NOW - 2 * HOUR,
        "walsh_killed_runs": 1,
        "walsh_blocklist_checked_timestamp_seconds": NOW - HOUR,
        "walsh_blocklist_refresh_seconds": 6 * HOUR,
        "walsh_sources": 200,
        "walsh_sources_failing": 3,
        "walsh_sources_refused": 1,
        "walsh_sources_refused_since_timestamp_seconds": NOW - 2 * DAY,
        "walsh_hosts_on_hold": 1,
        "walsh_hosts_on_long_hold": 1,
        "walsh_workers": 2,
        "walsh_state_disk_free_bytes": 5000 * MIB,
        "walsh_clock_ahead_seconds": 60,
    }
    write_metrics(str(file), [Finding(Status.UNKNOWN, "state", "")], None, NOW)
    assert set(metrics_of(file)) == {
        "walsh_status", 'walsh_check{check="state"}', "walsh_status_timestamp_seconds"
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == [file], "the file was renamed, and nothing is left"


def test_the_facts_of_a_state(url, tmp_path):
    file = tmp_path / "sources.txt"
    options = Options.from_settings(Settings({"WALSH_STATE_URL": url, "WALSH_SOURCES": str(file)}))
    with contextlib.closing(State(url)) as state:
        empty = gather(state, options, None)
        assert (empty.sources, empty.sources_error, empty.latest) == (0, "", {})
        keep_empty_blocklist(url)
        now = state.now()
        begin = {"spider": "feeds", "settings": {"max_wait": 900.0}}
        summaries = [
            ("finished", {"fetched": 2}),
            ("closespider_timeout", {"failed": 1, "fetched": 1}),
            ("state_failed", {"fetched": 5}),
            ("finished", {"failed": 1, "fetched": 0, "unchanged": 0}),
        ]
        for hours, (how, summary) in enumerate(summaries, 1):
            number = state.runs.begin(RunRecord(started_at=now + hours * HOUR - DAY, **begin))
            state.runs.end(number, now + hours * HOUR - DAY + 60, how, summary)
        wrong = state.runs.begin(RunRecord(started_at=now + 365 * DAY, **begin))
        state.runs.end(wrong, now + 366 * DAY, "finished", {"fetched": 1})
        jumped = state.runs.begin(RunRecord(started_at=now - 30 * HOUR, **begin))
        state.runs.end(jumped, now + 365 * DAY, "finished", {"fetched": 1})
        command = state.runs.begin(RunRecord(spider="feeds", command="shell", started_at=now - 60))
        state.runs.end(command, now - 50, "finished", {})
        alive = state.runs.begin(RunRecord(started_at=now - 2 * HOUR, **begin))
        record = replace(RECORD, requested_at=now - 60, run=alive)
        state.write(lambda connection: beat(connection, Worker("ours", now, alive)))
        other = replace(record, requested_at=now - 5, run=alive + 1)
        log_requests(state, record, other, replace(record, requested_at=now + 9 * DAY))
        hold(state, "lost.example", 4 * DAY, "unreachable")
        hold(state, "busy.example", 20 * DAY, "backoff", 503)
        with contextlib.closing(State(url, lambda: now + 300 * DAY)) as ahead:
            hold(ahead, "ahead.example", 60.0, "visit-time")
        for name, failures in (("a", 0), ("b", 1), ("undeclared", 1)):
            seen = {"kind": "feed", "visited_at": now + 2 * DAY, "failures": failures}
            commit(state, SourceRecord(url=f"http://{name}.example/", **seen))
        busy = SourceRecord(url="http://busy.example/", kind="feed")
        commit(state, after_refusal(busy, 503, now - 2 * DAY))
        missing = gather(state, options, None)
        file.write_text("http://a.example/\nhttp://b.example\nhttp://busy.example/\n")
        found = gather(state, options, None)
    assert missing.sources_error.endswith("--sources FILE, for a crawl -a sources=FILE")
    assert found.first_run == now + HOUR - DAY
    assert found.good_run == now + 2 * HOUR - DAY + 60
    assert found.bad_run.problem == "no source was read"
    assert [each.run for each in found.workers] == [alive]
    (going,) = found.open_runs
    assert (going.record.id, going.last_sign, going.was_killed) == (alive, now - 60, False)
    assert (found.sources, found.failing, found.list_refresh) == (3, 1, 7 * DAY)
    (refusal,) = found.refused
    assert (refusal.host, refusal.record.status) == ("busy.example", 503)
    assert refusal.record.refused_since == now - 2 * DAY
    assert refusal.refused_until == pytest.approx(now + 20 * DAY, abs=600)
    held = {each.host: not each.is_long_hold for each in found.held}
    assert held == {"lost.example": True, "busy.example": False, "ahead.example": True}
    assert found.latest["hosts"] == now + 300 * DAY
    assert found.latest["sources"] == now + 2 * DAY
    assert set(found.latest) == {"runs", "requests", "sources", "hosts", "blocklist"}
    assert bool(found.disk) == (found.disk_free > 0) == url.startswith("sqlite")


def test_few_sources_in_trouble_are_read_and_a_file_is_never_in_memory_as_a_whole(
    url, tmp_path, monkeypatch
):
    file = tmp_path / "sources.toml"
    tables = [f'[[source]]\nurl = "http://{name}.example/"\n' for name in ("a", "b", "c")]
    file.write_text("".join([*tables, tables[1].replace("b.example", "B.example")]))
    options = Options.from_settings(Settings({"WALSH_STATE_URL": url, "WALSH_SOURCES": str(file)}))
    monkeypatch.setattr("walsh_scrapy.tools.status.facts.MOST_ROWS", 1)
    with contextlib.closing(State(url)) as state:
        for name, failures in (("a", 0), ("b", 2), ("c", 1), ("undeclared", 1)):
            seen = {"kind": "feed", "visited_at": state.now() - 60, "failures": failures}
            commit(state, SourceRecord(url=f"http://{name}.example/", **seen))
        reader, read = state.sources._all, []

        def reading(*statement, **given):
            read.extend(rows := list(reader(*statement, **given)))
            return rows

        monkeypatch.setattr(state.sources, "_all", reading)
        found = gather(state, options, None)
    assert (found.sources, found.failing) == (3, 2)
    assert [row.record.url for row in found.failing_rows] == ["http://b.example/"], "the first"
    assert not any("http://a.example/" in row for row in read)


# `walsh status`: the exit statuses of every command, and nothing on a failure but a line.


@pytest.fixture
def status(called, tmp_path, monkeypatch):
    """Run the command in a folder of its own, whatever room this machine has."""
    monkeypatch.setattr(logging.getLogger("walsh_scrapy"), "level", logging.NOTSET)
    monkeypatch.setattr(findings, "DISK_MIB", Limits(1, 0))
    return partial(called, "status", WALSH_STATE_URL=f"sqlite:///{tmp_path / 'walsh.sqlite3'}")


@pytest.fixture
def well(status, tmp_path):
    """The same, with a state in which all is well."""
    (tmp_path / "sources.toml").write_text('[[source]]\nurl = "http://blog.example/feed"\n')
    url = f"sqlite:///{tmp_path / 'walsh.sqlite3'}"
    with contextlib.closing(State(url)) as state:
        now = state.now()
        number = state.runs.begin(RunRecord(spider="feeds", started_at=now - 60))
        state.runs.end(number, now - 30, "finished", {"fetched": 1})
    keep_empty_blocklist(url)
    return status


def test_all_is_well_for_an_operator_a_program_and_prometheus(well, tmp_path):
    file = tmp_path / "walsh.prom"
    code, said, error = well("--prometheus", file)
    first, *lines = said.splitlines()
    assert (code, first, error) == (0, "OK: all is well", "")
    assert [line.split()[:2] for line in lines][:2] == [["OK", "run"], ["OK", "killed"]]
    assert "walsh_status 0.0\n" in file.read_text()
    code, said, _ = well("--json")
    assert (code, json.loads(said)["status"]) == (0, "OK")
    assert well("--quiet") == (0, "", "")


def test_quiet_says_nothing_of_a_file_that_has_warnings_while_all_is_well(well, tmp_path, caplog):
    outline = '<outline text="Blog" xmlUrl="http://blog.example/feed"/>'
    file = tmp_path / "sources.opml"
    file.write_text(f"<opml><body>{outline}<outline xmlUrl='mailto:a'/>{outline}</body></opml>")
    well("--sources", file)
    assert len(caplog.messages) == 2
    caplog.clear()
    assert well("--quiet", "--sources", file) == (0, "", "")
    assert caplog.messages == []


def test_what_is_wrong_comes_first_and_sets_the_exit_status(well):
    assert well("--run-hours", "0.001,9")[0] == 1
    code, said, _ = well("-s", "WALSH_BLOCKLIST_FILE=nowhere.txt")
    assert (code, said.splitlines()[0]) == (1, "CRITICAL: blocklist")
    assert "WALSH_BLOCKLIST_FILE: nowhere.txt: No such file" in said
    code, said, _ = well("--quiet", "--sources", "elsewhere.toml")
    first, second, *_ = said.splitlines()
    assert (code, first) == (1, "CRITICAL: sources")
    assert "elsewhere.toml: there is no such file" in second


def test_a_state_that_cannot_be_read_is_unknown_for_everybody(status, tmp_path):
    file = tmp_path / "walsh.prom"
    code, said, _ = status("--prometheus", file)
    assert (code, said.splitlines()[0]) == (3, "UNKNOWN: state")
    assert "walsh_status 3.0\n" in file.read_text()
    (tmp_path / "walsh.sqlite3").write_bytes(b"this was a database once " * 100)
    code, said, _ = status("--json")
    (found,) = json.loads(said)["findings"]
    assert (code, found["status"], found["check"]) == (3, "UNKNOWN", "state")
    assert "walsh.sqlite3" in found["what"]


def test_a_bad_setting_and_a_file_that_cannot_be_written_are_unknown(status):
    code, _, error = status("--prometheus", "nowhere/walsh.prom")
    assert (code, error.count("\n")) == (3, 1)
    assert "--prometheus nowhere/walsh.prom: No such file" in error
    code, said, _ = status("-s", "WALSH_MIN_INTERVAL=0")
    assert (code, said.splitlines()[0]) == (3, "UNKNOWN: settings")
    assert "WALSH_MIN_INTERVAL" in said
