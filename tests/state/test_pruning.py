"""What is too old is deleted in small steps; what somebody still needs is not."""

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from scrapy.utils.test import get_crawler
from sqlalchemy import func, insert, select, text, update

from tests.helpers import records
from tests.helpers.records import DENIAL, RECORD, US, deny, keep_robots, log_requests
from walsh_scrapy.crawl import parts
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.scrapyinternals import Engine
from walsh_scrapy.feeds.stores import Stores, sync
from walsh_scrapy.feeds.stores.sync import OldFiles
from walsh_scrapy.policy.robots.copy import RobotsCopy
from walsh_scrapy.state import State, retention
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.evidence import _SET_COPY_SQL, COPY_MARGIN_SECONDS, Evidence, hash_of
from walsh_scrapy.state.ownership import beat
from walsh_scrapy.state.records import BlocklistCopy
from walsh_scrapy.state.retention import delete_in_turn
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.state.tables import (
    copies,
    declared,
    denials,
    files,
    hosts,
    requests,
    robots,
    runs,
)

DAY = 86_400.0
NOW = 1000 * DAY
COPY = {"sha256": "a", "kind": "robots", "body": b"", "first_used_at": 1.0, "last_used_at": 1.0}


def always():
    return True


@pytest.fixture
def small_blocks(monkeypatch):
    """Let a transaction delete 5 rows."""
    monkeypatch.setattr(retention, "MAX_ROWS_PER_DELETE", 5)
    monkeypatch.setattr(retention, "MAX_KEYS_PER_QUERY", 15)


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
    log_requests(state, *(replace(RECORD, requested_at=at) for at in moments))


def host(name, **columns):
    times = {
        "request_ended_at": NOW - 91 * DAY,
        "delay": 1.0,
        "hold_until": 0.0,
        "in_flight_until": 0.0,
    }
    return {"host": name, **times, "owner": "", "operator_delay": 0.0} | columns


def test_hosts_are_deleted_90_days_after_their_last_use(state, database, clock):
    clock.at = NOW
    rows = [
        host("old"),
        host("never requested", request_ended_at=None),
        host("died long ago", request_ended_at=None, in_flight_until=NOW - 91 * DAY),
        host("of a dead worker", owner="dead"),
        host("held long ago", hold_until=NOW - 95 * DAY),
        host("known crawl delay", delay=86_000.0),
        host("young", request_ended_at=NOW - 89 * DAY),
        host("on hold", hold_until=NOW + 300 * DAY),
        host("held lately", hold_until=NOW - 89 * DAY),
        host("in flight", in_flight_until=NOW + 60.0),
        host("died lately", request_ended_at=None, in_flight_until=NOW - 89 * DAY),
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
    assert left(database, requests.c.requested_at) == [NOW - 29 * DAY]


def test_pruning_ends_when_its_time_is_over(state, database, small_blocks, within):
    moments = [NOW - (31 + number) * DAY for number in range(25)]
    log(state, moments)
    for remaining in (15, 5):
        assert not state.prune(NOW, 30 * DAY, within(2))
        moments_left = left(database, requests.c.requested_at)
        assert moments_left == sorted(moments[:remaining]), "the newest rows remain"
    assert not state.prune(NOW, 30 * DAY, within(0))
    assert len(left(database, requests.c.requested_at)) == 5
    assert state.prune(NOW, 30 * DAY, always)
    assert left(database, requests.c.requested_at) == []


def test_no_table_has_to_wait_for_a_larger_one(state, database, clock, small_blocks, within):
    clock.at = NOW
    old = NOW - 200 * DAY
    log(state, [NOW - 31 * DAY] * 100)
    deny(state, replace(DENIAL, denied_at=old))
    fill(database, copies, [COPY])
    fill(database, hosts, [host("a", request_ended_at=old)])
    keep_robots(state, "http://a:80", RobotsCopy(old, 200, None))
    assert not state.prune(NOW, 30 * DAY, within(6))
    others = (denials.c.denied_at, copies.c.sha256, hosts.c.host, robots.c.origin)
    assert [left(database, column) for column in others] == [[], [], [], []]
    assert len(left(database, requests.c.requested_at)) == 90


def test_request_log_stops_growing_at_a_constant_rate(state, database, small_blocks, within):
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
        sizes.append(len(left(database, requests.c.requested_at)))
    assert max(sizes) == sizes[5] == 6 * 200
    assert sizes[-1] == 3 * 200


def test_row_renewed_during_pruning_is_kept(state, database, monkeypatch):
    keep_robots(state, "http://a:80", RobotsCopy(NOW - 91 * DAY, 200, b""))
    write = Database.write

    def renewed(self, work):
        if self is database:
            keep_robots(state, "http://a:80", RobotsCopy(NOW, 200, b""))
        return write(self, work)

    monkeypatch.setattr(Database, "write", renewed)
    delete_in_turn(database, [state.robots.old_rows(NOW)], always)
    assert left(database, robots.c.origin) == ["http://a:80"]


def test_rows_locked_by_another_process_are_skipped(postgresql_url):
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
            assert left(theirs.database, robots.c.origin) == ["http://a:80"]

        ours.write(write)


def test_pruning_ends_while_others_lock_the_remaining_rows(
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
    deny(state, replace(DENIAL, denied_at=old))
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
    monkeypatch.setattr(sync, "MAX_ROWS_PER_DELETE", 5)
    for name in ("old", "read"):
        urls = "".join(f"http://{name}.example/{number}\n" for number in range(12))
        (tmp_path / f"{name}.txt").write_text(f"{urls}http://both.example/\n")
        Stores(state).sync(tmp_path / f"{name}.txt", NOW)
    later = NOW + 91 * DAY
    assert Stores(state).sync(tmp_path / "read.txt", NOW + 60 * DAY).changes is None
    assert state.prune(NOW + 90 * DAY, 30 * DAY, always, [OldFiles(NOW + 90 * DAY)])
    assert len(left(database, declared.c.url)) == 26
    assert not state.prune(later, 30 * DAY, within(2), [OldFiles(later)])
    assert len(left(database, declared.c.url)) == 16, "in small transactions"
    assert Stores(state).sync(tmp_path / "old.txt", later).changes.new == 10, (
        "deleted sources are read again"
    )
    assert state.prune(later, 30 * DAY, always, [OldFiles(later)])
    assert len(left(database, declared.c.url)) == 26
    assert state.prune(later + 91 * DAY, 30 * DAY, always, [OldFiles(later + 91 * DAY)])
    assert left(database, declared.c.url) == left(database, files.c.path) == []
    assert Stores(state).sync(tmp_path / "old.txt", later + 91 * DAY).changes.new == 13


def test_file_read_during_pruning_is_kept(state, database, tmp_path, monkeypatch):
    file, later = tmp_path / "sources.txt", NOW + 91 * DAY
    file.write_text("http://a.example/")
    Stores(state).sync(file, NOW)
    write = Database.write

    def read(self, work):
        if self is database:
            Stores(state).sync(file, later)
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
        Stores(theirs).sync(file, NOW)

        def write(connection):
            connection.execute(update(declared).values(failures=2))
            assert theirs.prune(NOW + 91 * DAY, 30 * DAY, always, [OldFiles(NOW + 91 * DAY)])

        ours.write(write)
        assert len(left(ours, declared.c.url)) == len(left(ours, files.c.path)) == 1


# Denials and copies: each is kept as long as a record names it, and no longer (decision 33).

URL, ORIGIN, LIST = "http://a.example", "http://a.example:80", "http://operator.example/list"
OLD, NEW = b"User-agent: *\nDisallow: /\n", b"User-agent: *\n"
DENIAL_EVIDENCE = replace(
    records.DENIAL, run=3, evidence=Evidence("Disallow: /", 2, hash_of(OLD), 90.0, None)
)


def copy(state, body):
    with state.log() as log:
        named = copies.c.sha256 == hash_of(body)
        return log.connection.scalar(select(copies.c.body).where(named))


def prune(database, state, now, log_seconds):
    delete_in_turn(database, state.evidence.old_rows(now, log_seconds), lambda: True)


def robots_of_evidence(at, body=NEW):
    return RobotsCopy(at, 200, body)


def test_denial_names_its_rule_and_copy_of_robots_txt(state, rows):
    keep_robots(state, ORIGIN, robots_of_evidence(1.0, OLD))
    deny(state, DENIAL_EVIDENCE)
    named = text("SELECT gate, rule, line, robots, run FROM readable_denials")
    assert rows(named) == [("robots", "Disallow: /", 2, hash_of(OLD), 3)]


def test_a_copy_that_was_deleted_is_no_other_one(state, database, rows):
    for origin, body in ((ORIGIN, OLD), ("http://b.example:80", NEW)):
        keep_robots(state, origin, robots_of_evidence(1.0, body))
        deny(state, replace(DENIAL_EVIDENCE, evidence=Evidence(robots=hash_of(body))))
    database.write(lambda connection: connection.execute(copies.delete()))
    keep_robots(state, ORIGIN, robots_of_evidence(2.0, b""))
    names = rows(text("SELECT robots FROM readable_denials"))
    assert names == [(None,), (None,)]


def test_source_equal_to_the_request_url_is_stored_once(state, rows):
    other = f"{RECORD.url}/moved"
    log_requests(state, *(replace(RECORD, source=source) for source in (RECORD.url, other, None)))
    in_order = [(RECORD.url,), (other,), (None,)]
    assert rows(select(requests.c.source).order_by(requests.c.id)) == [("",), *in_order[1:]]
    assert rows(text("SELECT source FROM readable_requests ORDER BY id")) == in_order


def test_each_document_is_kept_once(state, rows):
    for at, origin in ((1.0, ORIGIN), (2.0, ORIGIN), (3.0, "http://b.example:80")):
        keep_robots(state, origin, robots_of_evidence(at))
    state.blocklist.keep(LIST, BlocklistCopy(hash_of(b"{}"), None, None, 4.0), b"{}")
    assert rows(select(func.count()).select_from(copies)) == [(2,)]
    documents = rows(select(copies.c.sha256, copies.c.kind, copies.c.first_used_at))
    assert set(documents) == {(hash_of(NEW), "robots", 1.0), (hash_of(b"{}"), "blocklist", 4.0)}
    assert (copy(state, NEW), copy(state, OLD)) == (NEW, None)


def test_the_request_that_brought_a_robots_txt_names_it(state, rows):
    """It is the last one of its run, if it was just sent; one that was tried before is not."""
    request = replace(RECORD, requested_at=900.0, url=f"{URL}/robots.txt", purpose="robots", run=1)
    others = [{"requested_at": 1.0}, {"run": 2}, {"run": None}, {"host": "b.example"}]
    others += [{"url": f"{URL}:81/robots.txt"}, {"purpose": "target"}, {"requested_at": 699.0}]
    log_requests(
        state, *(replace(request, **other) for other in [*others, {"requested_at": 901.0}])
    )
    keep_robots(state, ORIGIN, robots_of_evidence(1000.0), "a.example", 1)
    copy_of = select(copies.c.sha256).where(copies.c.id == requests.c.robots).scalar_subquery()
    named = select(copy_of, requests.c.robots_at, requests.c.robots_status)
    evidence = rows(named.order_by(requests.c.id))
    assert evidence == [(None, None, None)] * len(others) + [(hash_of(NEW), 1000.0, 200)]
    keep_robots(state, ORIGIN, RobotsCopy(1001.0, 503, failing_since=1001.0), "a.example", None)
    assert rows(named.where(requests.c.run.is_(None))) == [(None, 1001.0, 503)]
    keep_robots(state, ORIGIN, robots_of_evidence(1300.0), "a.example", 1)
    assert rows(select(requests.c.id).where(requests.c.robots_at == 1300.0)) == [], (
        "the request is too old to be completed"
    )


def test_a_copy_goes_after_the_last_record_that_can_name_it(state, database):
    keep_robots(state, ORIGIN, robots_of_evidence(0.0, OLD))
    keep_robots(state, ORIGIN, robots_of_evidence(5 * DAY, OLD))
    keep_robots(state, ORIGIN, robots_of_evidence(9 * DAY, NEW))
    last = 9 * DAY + 30 * DAY + COPY_MARGIN_SECONDS
    prune(database, state, last + DAY - 1.0, 30 * DAY)
    assert copy(state, OLD) is not None, "the copy was used until day 9"
    prune(database, state, last + DAY, 30 * DAY)
    assert copy(state, OLD) is None
    prune(database, state, 1000 * DAY, 30 * DAY)
    assert copy(state, NEW) is not None, "the copy is in use"


def test_the_document_of_the_blocklist_in_use_stays(state, database):
    url = "http://operator.example/blocklist.json"
    for body, at in ((OLD, 0.0), (NEW, DAY)):
        state.blocklist.keep(url, BlocklistCopy(hash_of(body), None, None, at, ""), body)
    prune(database, state, 1000 * DAY, 30 * DAY)
    assert copy(state, OLD) is None
    assert state.blocklist.document(url) == NEW


def test_the_copy_of_a_file_that_fails_stays(state, database):
    keep_robots(state, ORIGIN, robots_of_evidence(0.0))
    failing = replace(state.robots.find(ORIGIN), requested_at=900 * DAY, failing_since=900 * DAY)
    keep_robots(state, ORIGIN, failing)
    prune(database, state, 1000 * DAY, 30 * DAY)
    assert copy(state, NEW) == NEW


def test_copies_stay_while_old_records_are_left_for_later(state, database):
    for body, at in ((OLD, 0.0), (NEW, DAY)):
        keep_robots(state, ORIGIN, robots_of_evidence(at, body))
    deny(state, replace(DENIAL_EVIDENCE, denied_at=DAY))
    late = 300 * DAY
    log_requests, log_denials, documents = state.evidence.old_rows(late, 30 * DAY)
    delete_in_turn(database, [log_requests, documents], lambda: True)
    assert copy(state, OLD) is not None, "the denial refers to the copy"
    delete_in_turn(database, [log_denials], lambda: True)
    delete_in_turn(database, [documents], lambda: True)
    assert copy(state, OLD) is None


def test_a_denial_has_no_evidence_of_other_gates():
    """A retry or a redirect carries what was found out about the request before."""
    evidence = Evidence("Allow: /", 2, hash_of(OLD), 90.0, hash_of(b"{}"))
    assert evidence.of_gate("robots") is evidence
    assert evidence.of_gate("blocklist") == Evidence(rule="Allow: /", blocklist=hash_of(b"{}"))
    assert evidence.of_gate("privatehosts") == Evidence(blocklist=hash_of(b"{}"))


def test_a_denied_url_may_have_any_host(state, rows):
    deny(state, replace(DENIAL_EVIDENCE, host="a" * 300))
    assert rows(select(denials.c.host)) == [("a" * 255,)]


def test_each_day_of_the_log_goes_as_a_whole(state, database, rows):
    """Readers get the same answers whatever the hour of the pruning is."""
    moments = [100.0, DAY, 2 * DAY - 1.0, 2 * DAY]
    for at in moments:
        log_requests(state, replace(RECORD, requested_at=at))
        deny(state, replace(DENIAL_EVIDENCE, denied_at=at))
    times = (requests.c.requested_at, denials.c.denied_at)
    logged = [select(column).order_by(column) for column in times]
    for now, left in ((41 * DAY - 1.0, moments), (41 * DAY, moments[1:])):
        prune(database, state, now, 40 * DAY)
        assert [[at for (at,) in rows(statement)] for statement in logged] == [left, left]
    prune(database, state, 42 * DAY - 1.0, 40 * DAY)
    assert len(list(state.rows("readable_requests"))) == len(moments[1:])


def test_the_request_of_a_copy_is_found_by_an_index(state, plans):
    log_requests(state, replace(RECORD, requested_at=100.0))
    plans.clear()
    row = {"paced": "a", "robots_url": "u", "crawl": 1, "since": 1.0, "purpose_": "robots"}
    row |= {"name": "a", "at": 1.0, "last": 200}
    state.database.write(lambda connection: connection.execute(_SET_COPY_SQL, row))
    assert len(plans) == 1
    for plan in plans:
        assert not re.search(r"Seq Scan on requests|SCAN requests(?! USING)", plan), plan


def test_crawls_that_write_the_same_robots_txt_do_not_deadlock(opened, state):
    """On PostgreSQL that would be a deadlock, which ends one of them."""
    keep_robots(state, ORIGIN, robots_of_evidence(0.0))

    def keeps(crawl):
        for number in range(150):
            keep_robots(crawl, ORIGIN, robots_of_evidence(float(number), (OLD, NEW)[number % 2]))

    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(keeps, opened()) for _ in range(2)]
        for job in jobs:
            job.result()


def test_denial_and_run_are_written_once_if_a_commit_is_repeated(state, rows, monkeypatch):
    once = Database._run_once

    def twice(database, work, begin):
        once(database, work, begin)
        return once(database, work, begin)

    monkeypatch.setattr(Database, "_run_once", twice)
    deny(state, DENIAL_EVIDENCE)
    number = state.runs.begin(RunRecord(spider="feeds", started_at=100.0))
    monkeypatch.undo()
    assert rows(select(func.count()).select_from(denials)) == [(1,)]
    assert rows(select(runs.c.id)) == [(number,)]


# How long a crawl deletes old rows from its state: nobody waits for it (decision 18).


@pytest.fixture
def settings(tmp_path):
    return {"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"}


@pytest.fixture
def pruned(monkeypatch, walsh_fake_clock):
    """Return a list with the seconds of each pruning, on a state with too many old rows."""
    took = []

    def prune(self, now, log_seconds, goes_on, further=()):
        began = walsh_fake_clock.at
        while goes_on() and walsh_fake_clock.at < began + 100.0:
            walsh_fake_clock.at += 1.0
        took.append(walsh_fake_clock.at - began)
        return False

    monkeypatch.setattr(State, "prune", prune)
    return took


def run(settings, walsh_fake_clock):
    crawl = Crawl(get_crawler(settings_dict=settings), walsh_fake_clock)
    assert crawl.context
    crawl.close()


def test_run_prunes_for_2_s_at_its_start_and_60_s_at_its_end(
    settings, walsh_fake_clock, pruned, caplog
):
    with caplog.at_level("INFO"):
        run(settings, walsh_fake_clock)
    assert pruned == [2.0, 60.0]
    messages = [line for line in caplog.messages if "old rows" in line]
    assert len(messages) == 2
    assert messages[1].startswith("60 s ")


def test_other_crawls_of_the_process_do_not_wait_for_long(
    settings, walsh_fake_clock, pruned, monkeypatch
):
    other = Crawl(get_crawler(settings_dict=settings), walsh_fake_clock)
    monkeypatch.setattr(Engine, "is_open", property(lambda engine: engine is other.engine))
    run(settings, walsh_fake_clock)
    assert pruned == [2.0, 2.0]


def test_a_run_that_is_stopped_leaves_its_old_rows(
    settings, walsh_fake_clock, pruned, monkeypatch, caplog
):
    monkeypatch.setattr(parts, "is_stopping", lambda: True)
    with caplog.at_level("INFO"):
        run(settings, walsh_fake_clock)
    assert pruned == [0.0, 0.0]
    assert not any("old rows" in line for line in caplog.messages)
