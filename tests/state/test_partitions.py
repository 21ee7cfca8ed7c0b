"""The days of the log: each is a partition on PostgreSQL, and goes as a whole on both databases."""

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest
from sqlalchemy import insert, select, text

from tests.helpers.records import BACKOFF, RECORD
from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.state import State, copies, evidence
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.evidence import log_end, log_lease
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.state.partitions import Days
from walsh_scrapy.state.tables import requests

#: 1972-09-27, and what its partition is called.
NOW, TODAY = 1000 * DAY, "requests_1972_09_27"
TOMORROW = "requests_1972_09_28"


@pytest.fixture
def server(postgresql_url):
    """A state on PostgreSQL, where `requests` has partitions."""
    with (
        contextlib.closing(State(postgresql_url)),
        contextlib.closing(Database(postgresql_url)) as database,
    ):
        yield database


def partitions(database):
    """Return how many rows each partition has, by its name."""
    sql = (
        "SELECT relname, (SELECT count(*) FROM requests WHERE requests.tableoid = inhrelid)"
        " FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
        " WHERE inhparent = 'requests'::regclass"
    )
    with database.read() as connection:
        return dict(connection.all(text(sql)))


def prepare(database, now):
    Days(database).prepare(lambda: now)


def send(database, at, **columns):
    with database.write() as connection:
        log_end(connection, replace(RECORD, sent_at=at, **columns))


def prune(database, now):
    for _ in evidence.EvidenceStore(database).old_rows(now, 30 * DAY)[0].blocks(database):
        pass


def sent_at(database):
    with database.read() as connection:
        return sorted(connection.scalars(select(requests.c.sent_at)))


def test_the_first_request_of_a_day_makes_its_partition_and_the_next_one(postgresql_url, server):
    moments = [NOW + 5.0, NOW + 9.0, NOW + DAY - 1.0, NOW + DAY, NOW - 5 * DAY]
    with contextlib.closing(State(postgresql_url, lambda: at)) as state:
        for at in moments:
            record = replace(RECORD, sent_at=at)
            state.ledger.take("a.example", 0.0, 60.0, record=record)
            state.ledger.release("a.example", Exchange(interval=0.0), BACKOFF, record)
    assert partitions(server) == {
        "requests_rest": 0,
        TODAY: 3,
        TOMORROW: 1,
        "requests_1972_09_29": 0,
        "requests_1972_09_22": 1,  # the clock was set back
        "requests_1972_09_23": 0,
    }


def test_two_workers_make_a_partition_at_once(postgresql_url, server):
    barrier = Barrier(4)

    def work(number):
        with contextlib.closing(Database(postgresql_url)) as database:
            barrier.wait()
            prepare(database, NOW)
            send(database, NOW, run=number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert partitions(server) == {"requests_rest": 0, TODAY: 4, TOMORROW: 0}


def test_a_row_of_a_day_without_partition_is_kept_and_goes_with_its_day(server):
    send(server, NOW)
    days = Days(server)
    days.prepare(lambda: NOW + 1.0)
    assert partitions(server) == {"requests_rest": 1, TOMORROW: 0}, "its day has a row elsewhere"
    send(server, NOW + 2.0)
    send(server, NOW + DAY)
    assert partitions(server) == {"requests_rest": 2, TOMORROW: 1}
    prune(server, NOW + 31 * DAY - 1.0)
    assert len(sent_at(server)) == 3
    prune(server, NOW + 31 * DAY)
    assert partitions(server) == {"requests_rest": 0, TOMORROW: 1}


def test_a_partition_that_a_reader_keeps_from_being_made_is_tried_again(postgresql_url, server):
    days = Days(server)
    with contextlib.closing(State(postgresql_url)) as state:
        with state.log() as log:
            log.requests(TimeSpan())
            days.prepare(lambda: NOW)
            assert partitions(server) == {"requests_rest": 0}
        days.prepare(lambda: NOW + 1.0)
        assert partitions(server) == {"requests_rest": 0}, "not with each request"
        days.prepare(lambda: NOW + 600.0)
    assert partitions(server) == {"requests_rest": 0, TODAY: 0, TOMORROW: 0}


def test_a_day_whose_first_request_came_before_its_partition_is_not_tried_again(
    postgresql_url, server, monkeypatch
):
    """As in a crawl: the request that could not make the partition is the first row of its day."""
    tried, run = [], Days._run
    monkeypatch.setattr(Days, "_run", lambda self, sql: tried.append(sql) or run(self, sql))
    with contextlib.closing(State(postgresql_url, lambda: NOW)) as state:
        with state.log() as log:
            log.requests(TimeSpan())
            state.ledger.take("a.example", 0.0, 60.0, record=replace(RECORD, sent_at=NOW))
        assert partitions(server) == {"requests_rest": 1}
    assert len(tried) == 2
    days = Days(server)
    for second in (600.0, 1200.0, DAY - 1.0):
        days.prepare(lambda at=NOW + second: at)
    assert partitions(server) == {"requests_rest": 1, TOMORROW: 0}
    assert len(tried) == 3, "only the next day, and once"


def test_pruning_drops_old_days_and_only_these_while_another_writes(postgresql_url, server):
    for day in range(4):
        prepare(server, NOW + day * DAY)
        send(server, NOW + day * DAY)
    with contextlib.closing(Database(postgresql_url)) as theirs:
        with theirs.write() as connection:
            lease = log_lease(connection, replace(RECORD, sent_at=NOW + 3 * DAY + 1.0))
            prune(server, NOW + 32 * DAY)
            assert len(sent_at(server)) == 4, "they hold a lock, and are not waited for"
            log_end(connection, replace(RECORD, sent_at=lease.at), lease)
        prune(server, NOW + 32 * DAY)
    left = [NOW + 2 * DAY, NOW + 3 * DAY, NOW + 3 * DAY + 1.0]
    assert sent_at(server) == left
    assert TODAY not in partitions(server)


def test_a_day_is_dropped_and_no_row_of_it_is_deleted(server):
    prepare(server, NOW)
    with server.write() as connection:
        row = {"host": "a", "url": "", "gates": 1, "purpose": "", "pause": 0.0, "hold": 0.0}
        connection.run_each(insert(requests), [row | {"sent_at": NOW + n} for n in range(2000)])
    assert list(Days(server).drop(NOW + DAY)) == [1], "one transaction, and nothing in the rest"
    assert sent_at(server) == []


def test_each_day_goes_as_a_whole_on_both_databases(state, database):
    """Both databases give readers the same answers, whatever the hour of the pruning is."""
    moments = [NOW - 1.0, NOW, NOW + DAY - 1.0, NOW + DAY]
    for at in moments:
        send(database, at)
    for hour in (0, 12, 23.99):
        prune(database, NOW + 30 * DAY + hour * 3600.0)
        assert sent_at(database) == moments[1:]
    with state.log() as log:
        assert [each.sent_at for each in log.requests(TimeSpan(), "a.example")] == moments[1:]
        assert log.last_day("a.example", "a.example") == 1001


def test_what_why_judges_by_needs_no_scan_of_all_requests(state, database, plans):
    prepare(database, NOW)
    send(database, NOW)
    with state.log() as log:
        plans.clear()
        log.basis(log.bounds(NOW))
    assert len(plans) >= 3
    for plan in plans:
        assert not re.search(r"Aggregate|Seq Scan on requests|SCAN requests(?! USING)", plan), plan


@pytest.mark.parametrize("statement", ["_END", "_FORGET"])
def test_the_end_of_a_request_looks_at_its_own_day_only(server, statement):
    for day in range(5):
        prepare(server, NOW + day * DAY)
    compiled = str(getattr(evidence, statement).compile(dialect=server._engine.dialect))
    row = dict.fromkeys(evidence._ENDS, None) | {"number": 1, "at": NOW}
    assert partitions_in(server, compiled, row) == {TODAY}


def test_the_copy_of_a_robots_txt_is_named_by_an_index(server):
    prepare(server, NOW)
    row = {"paced": "a", "asked": "u", "crawl": 1, "since": NOW, "what": "robots"}
    row |= {"name": 1, "at": NOW, "last": 200}
    compiled = str(copies._NAME_COPY.compile(dialect=server._engine.dialect))
    assert partitions_in(server, compiled, row) == {TODAY, TOMORROW, "requests_rest"}


def partitions_in(database, sql, row):
    """Return the partitions that a plan reads, all of them by an index."""
    with database.write() as connection:
        connection.run_sql("SET LOCAL enable_seqscan = off")
        cursor = connection.driver.cursor()
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", row)
        (plan,) = cursor.fetchone()
    nodes, found = [plan[0]["Plan"]], set()
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if "Relation Name" in node and node["Node Type"] != "ModifyTable":
            assert "Index" in node["Node Type"], node
            found.add(node["Relation Name"])
    return found
