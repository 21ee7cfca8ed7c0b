"""What is too old is deleted in small steps; what somebody still needs is not."""

import contextlib
import re
from dataclasses import replace

import pytest
from sqlalchemy import insert, select, update

from tests.helpers.records import DENIAL, RECORD, US, deny, keep_robots, log_requests
from walsh_scrapy.policy.robots.copy import RobotsCopy
from walsh_scrapy.state import State, retention, sync
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.hosts import beat
from walsh_scrapy.state.retention import delete_in_turn
from walsh_scrapy.state.tables import (
    copies,
    declared,
    denials,
    files,
    hosts,
    requests,
    robots,
)

DAY = 86_400.0
NOW = 1000 * DAY
COPY = {"hash": "a", "kind": "robots", "body": b"", "first_seen": 1.0, "kept_at": 1.0}


def always():
    return True


@pytest.fixture
def small_blocks(monkeypatch):
    """Let a transaction delete 5 rows."""
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(retention, "KEYS_AT_ONCE", 15)


@pytest.fixture
def transactions(monkeypatch):
    """Return a list with an element for each transaction."""
    begun = []
    write = Database.write
    monkeypatch.setattr(Database, "write", lambda self, work: begun.append(1) or write(self, work))
    return begun


@pytest.fixture
def within(transactions):
    """Return what makes a budget of time, on a clock by which each transaction takes a second."""

    def budget(seconds):
        until = len(transactions) + seconds
        return lambda: len(transactions) < until

    return budget


def fill(database, table, rows):
    database.write(lambda connection: connection.execute(insert(table), list(rows)))


def left(database, column):
    return database.read(lambda connection: sorted(connection.scalars(select(column))))


def log(state, moments):
    log_requests(state, *(replace(RECORD, sent_at=at) for at in moments))


def host(name, **columns):
    times = {"ended": NOW - 91 * DAY, "delay": 1.0, "hold_until": 0.0, "busy_until": 0.0}
    return {"host": name, **times, "owner": "", "operator_delay": 0.0} | columns


def test_hosts_go_90_days_after_the_last_moment_that_they_are_about(state, database, clock):
    clock.at = NOW
    rows = [
        host("old"),
        host("never requested", ended=None),
        host("died long ago", ended=None, busy_until=NOW - 91 * DAY),
        host("of a dead worker", owner="dead"),
        host("held long ago", hold_until=NOW - 95 * DAY),
        host("known crawl delay", delay=86_000.0),
        host("young", ended=NOW - 89 * DAY),
        host("on hold", hold_until=NOW + 300 * DAY),
        host("held lately", hold_until=NOW - 89 * DAY),
        host("in flight", busy_until=NOW + 60.0),
        host("died lately", ended=None, busy_until=NOW - 89 * DAY),
        host("long crawl delay", delay=92 * DAY),
        host("slowed by the operator", operator_delay=5.0),
        host("owned", owner=US.id),
    ]
    fill(database, hosts, rows)
    state.write(lambda connection: beat(connection, US))
    state.prune(NOW, 30 * DAY, always)
    assert left(database, hosts.c.host) == sorted(row["host"] for row in rows[6:])


def test_robots_copies_go_90_days_after_the_last_request(state, database):
    old, young = NOW - 91 * DAY, NOW - 89 * DAY
    keep_robots(state, "http://old:80", RobotsCopy(old, 200, b""))
    keep_robots(state, "http://failing:80", RobotsCopy(old, 503, b"", failing_since=old))
    keep_robots(state, "http://young:80", RobotsCopy(young, 200, b""))
    state.prune(NOW, 30 * DAY, always)
    assert left(database, robots.c.origin) == ["http://young:80"]


def test_rows_go_in_small_transactions(state, database, transactions):
    log(state, [NOW - (31 + number % 2) * DAY for number in range(1200)])
    log(state, [NOW - 29 * DAY])
    transactions.clear()
    assert state.prune(NOW, 30 * DAY, always)
    assert len(transactions) == 3, "500 rows at once, and no transaction if nothing is old"
    assert left(database, requests.c.sent_at) == [NOW - 29 * DAY]


def test_pruning_ends_when_its_time_is_over(state, database, small_blocks, within):
    moments = [NOW - (31 + number) * DAY for number in range(25)]
    log(state, moments)
    for remaining in (15, 5):
        assert not state.prune(NOW, 30 * DAY, within(2))
        found = left(database, requests.c.sent_at)
        assert found == sorted(moments[:remaining]), "nothing is missing after what is left"
    assert not state.prune(NOW, 30 * DAY, within(0))
    assert len(left(database, requests.c.sent_at)) == 5
    assert state.prune(NOW, 30 * DAY, always)
    assert left(database, requests.c.sent_at) == []


def test_no_table_has_to_wait_for_a_larger_one(state, database, clock, small_blocks, within):
    clock.at = NOW
    old = NOW - 200 * DAY
    log(state, [NOW - 31 * DAY] * 100)
    deny(state, replace(DENIAL, at=old))
    fill(database, copies, [COPY])
    fill(database, hosts, [host("a", ended=old)])
    keep_robots(state, "http://a:80", RobotsCopy(old, 200, None))
    assert not state.prune(NOW, 30 * DAY, within(6))
    others = (denials.c.at, copies.c.hash, hosts.c.host, robots.c.origin)
    assert [left(database, each) for each in others] == [[], [], [], []]
    assert len(left(database, requests.c.sent_at)) == 90


def test_a_record_of_as_many_requests_every_day_does_not_grow_for_ever(
    state, database, small_blocks, within
):
    """200 a day are kept for 3 days; 5 are deleted in a second, and a run has 2 s and 60 s for it.

    The first run comes after 6 days: each one deletes more than a day adds.
    """
    sizes = []
    for day in range(1, 16):
        now = NOW + day * DAY
        log(state, (now - DAY + at for at in range(200)))
        if day > 6:
            for seconds in (2, 60):
                state.prune(now, 3 * DAY, within(seconds))
        sizes.append(len(left(database, requests.c.sent_at)))
    assert max(sizes) == sizes[5] == 6 * 200
    assert sizes[-1] == 3 * 200


def test_what_another_process_renews_meanwhile_stays(state, database, monkeypatch):
    keep_robots(state, "http://a:80", RobotsCopy(NOW - 91 * DAY, 200, b""))
    write = Database.write

    def renewed(self, work):
        if self is database:
            keep_robots(state, "http://a:80", RobotsCopy(NOW, 200, b""))
        return write(self, work)

    monkeypatch.setattr(Database, "write", renewed)
    delete_in_turn(database, [state.robots.old_rows(NOW)], always)
    assert left(database, robots.c.origin) == ["http://a:80"]


def test_what_another_process_is_changing_is_left_to_it(postgresql_url):
    """PostgreSQL locks rows, and two that wait for each other would end a crawl."""
    with (
        contextlib.closing(State(postgresql_url)) as theirs,
        contextlib.closing(Database(postgresql_url)) as ours,
    ):
        for origin in ("http://a:80", "http://b:80"):
            keep_robots(theirs, origin, RobotsCopy(NOW - 91 * DAY, 200, b""))

        def write(connection):
            changed = update(robots).where(robots.c.origin == "http://a:80").values(status=1)
            connection.execute(changed)
            theirs.prune(NOW, 30 * DAY, always)
            assert left(theirs._database, robots.c.origin) == ["http://a:80"]

        ours.write(write)


def test_pruning_ends_although_others_hold_all_that_is_left(
    postgresql_url, small_blocks, transactions, within
):
    with (
        contextlib.closing(State(postgresql_url)) as theirs,
        contextlib.closing(Database(postgresql_url)) as ours,
    ):
        log(theirs, [NOW - 31 * DAY] * 40)

        def write(connection):
            connection.execute(update(requests).values(status=1))
            assert theirs.prune(NOW, 30 * DAY, within(100))

        ours.write(write)


def test_old_rows_are_found_by_an_index(state, database, plans):
    """Hosts are not: see their table."""
    old = NOW - 200 * DAY
    log(state, [old])
    deny(state, replace(DENIAL, at=old))
    fill(database, copies, [COPY])
    keep_robots(state, "http://a:80", RobotsCopy(old, 200, b""))
    groups = [*state.evidence.old_rows(NOW, 30 * DAY), state.robots.old_rows(NOW)]
    plans.clear()
    assert delete_in_turn(database, groups, always)
    assert len(plans) == 8, "a query and a deletion of each table"
    for plan in plans:
        assert re.findall(r"SCAN (?!CONSTANT|blocklist).*|TEMP B-TREE.*", plan) == []
        assert re.findall(r"Seq Scan on (?!blocklist).*|Sort .*", plan) == []


def test_a_file_that_no_run_read_for_90_days_is_forgotten(
    state, database, tmp_path, monkeypatch, within
):
    monkeypatch.setattr(sync, "ROWS_AT_ONCE", 5)
    for name in ("old", "read"):
        urls = "".join(f"http://{name}.example/{number}\n" for number in range(12))
        (tmp_path / f"{name}.txt").write_text(f"{urls}http://both.example/\n")
        state.sync(tmp_path / f"{name}.txt", NOW)
    later = NOW + 91 * DAY
    assert state.sync(tmp_path / "read.txt", NOW + 60 * DAY).changes is None
    assert state.prune(NOW + 90 * DAY, 30 * DAY, always)
    assert len(left(database, declared.c.url)) == 26
    assert not state.prune(later, 30 * DAY, within(2))
    assert len(left(database, declared.c.url)) == 16, "in small transactions"
    assert state.sync(tmp_path / "old.txt", later).changes.new == 10, "what is gone is read again"
    assert state.prune(later, 30 * DAY, always)
    assert len(left(database, declared.c.url)) == 26
    assert state.prune(later + 91 * DAY, 30 * DAY, always)
    assert left(database, declared.c.url) == left(database, files.c.path) == []
    assert state.sync(tmp_path / "old.txt", later + 91 * DAY).changes.new == 13


def test_a_file_that_is_read_meanwhile_is_not_forgotten(state, database, tmp_path, monkeypatch):
    file, later = tmp_path / "sources.txt", NOW + 91 * DAY
    file.write_text("http://a.example/")
    state.sync(file, NOW)
    write = Database.write

    def read(self, work):
        if self is database:
            state.sync(file, later)
        return write(self, work)

    monkeypatch.setattr(Database, "write", read)
    delete_in_turn(database, [sync.OldFiles(later)], always)
    assert left(database, declared.c.url) == ["http://a.example/"]


def test_a_source_whose_visit_is_being_written_is_left_to_it(postgresql_url, tmp_path):
    file = tmp_path / "sources.txt"
    file.write_text("http://a.example/")
    with (
        contextlib.closing(State(postgresql_url)) as theirs,
        contextlib.closing(Database(postgresql_url)) as ours,
    ):
        theirs.sync(file, NOW)

        def write(connection):
            connection.execute(update(declared).values(failures=2))
            assert theirs.prune(NOW + 91 * DAY, 30 * DAY, always)

        ours.write(write)
        assert len(left(ours, declared.c.url)) == len(left(ours, files.c.path)) == 1
