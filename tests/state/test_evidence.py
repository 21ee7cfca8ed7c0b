"""Denials and copies: each is kept as long as a record names it, and no longer (decision 33)."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sqlalchemy import func, select, text

from tests.helpers import records
from tests.helpers.records import RECORD, deny, keep_robots, log_requests
from walsh_scrapy.policy.robots.copy import RobotsCopy
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.documents import _NAME_COPY, hash_of
from walsh_scrapy.state.log import LOST, MARGIN, Evidence, TimeSpan, selected
from walsh_scrapy.state.records import BlocklistCopy
from walsh_scrapy.state.retention import delete_in_turn
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.tables import copies, denials, requests, runs

DAY = 86_400.0
URL, ORIGIN, LIST = "http://a.example", "http://a.example:80", "http://operator.example/list"
OLD, NEW = b"User-agent: *\nDisallow: /\n", b"User-agent: *\n"
DENIAL = replace(
    records.DENIAL, run=3, evidence=Evidence("Disallow: /", 2, hash_of(OLD), 90.0, None)
)


def copy(state, body):
    with state.log() as log:
        return log.copy(hash_of(body))


def prune(database, state, now, log_seconds):
    delete_in_turn(database, state.evidence.old_rows(now, log_seconds), lambda: True)


def robots(at, body=NEW):
    return RobotsCopy(at, 200, body)


def test_a_denial_names_what_decided(state, rows):
    keep_robots(state, ORIGIN, robots(1.0, OLD))
    deny(state, DENIAL)
    columns = ("gate", "rule", "line", "robots", "run")
    assert rows(selected(denials, columns)) == [("robots", "Disallow: /", 2, hash_of(OLD), 3)]


def test_a_copy_that_was_deleted_is_no_other_one(state, database, rows):
    for origin, body in ((ORIGIN, OLD), ("http://b.example:80", NEW)):
        keep_robots(state, origin, robots(1.0, body))
        deny(state, replace(DENIAL, evidence=Evidence(robots=hash_of(body))))
    database.write(lambda connection: connection.execute(copies.delete()))
    keep_robots(state, ORIGIN, robots(2.0, b""))
    names = rows(selected(denials, ("robots",)).order_by(denials.c.id))
    assert names == [(f"{LOST}1",), (f"{LOST}2",)]


def test_a_source_that_is_the_url_of_its_request_is_not_written_again(state, rows):
    other = f"{RECORD.url}/moved"
    log_requests(state, *(replace(RECORD, source=each) for each in (RECORD.url, other, None)))
    in_order = [(RECORD.url,), (other,), (None,)]
    assert rows(select(requests.c.source).order_by(requests.c.id)) == [("",), *in_order[1:]]
    assert rows(selected(requests, ("source",)).order_by(requests.c.id)) == in_order
    assert rows(text("SELECT source FROM readable_requests ORDER BY id")) == in_order


def test_each_document_is_kept_once(state, rows):
    for at, origin in ((1.0, ORIGIN), (2.0, ORIGIN), (3.0, "http://b.example:80")):
        keep_robots(state, origin, robots(at))
    state.blocklist.keep(LIST, BlocklistCopy(hash_of(b"{}"), None, None, 4.0), b"{}")
    assert rows(select(func.count()).select_from(copies)) == [(2,)]
    kept = rows(select(copies.c.hash, copies.c.kind, copies.c.first_seen))
    assert set(kept) == {(hash_of(NEW), "robots", 1.0), (hash_of(b"{}"), "blocklist", 4.0)}
    assert (copy(state, NEW), copy(state, OLD)) == (NEW, None)


def test_the_request_that_brought_a_robots_txt_names_it(state, rows):
    """It is the last one of its run, if it was just sent; one that was tried before is not."""
    asked = replace(RECORD, sent_at=900.0, url=f"{URL}/robots.txt", purpose="robots", run=1)
    others = [{"sent_at": 1.0}, {"run": 2}, {"run": None}, {"host": "b.example"}]
    others += [{"url": f"{URL}:81/robots.txt"}, {"purpose": "target"}, {"sent_at": 699.0}]
    log_requests(state, *(replace(asked, **other) for other in [*others, {"sent_at": 901.0}]))
    keep_robots(state, ORIGIN, robots(1000.0), "a.example", 1)
    named = selected(requests, ("robots", "robots_at", "robots_status"))
    found = rows(named.order_by(requests.c.id))
    assert found == [(None, None, None)] * len(others) + [(hash_of(NEW), 1000.0, 200)]
    keep_robots(state, ORIGIN, RobotsCopy(1001.0, 503, failing_since=1001.0), "a.example", None)
    assert rows(named.where(requests.c.run.is_(None))) == [(None, 1001.0, 503)]
    keep_robots(state, ORIGIN, robots(1300.0), "a.example", 1)
    assert rows(select(requests.c.id).where(requests.c.robots_at == 1300.0)) == [], "too late"


def test_a_copy_goes_after_the_last_record_that_can_name_it(state, database):
    keep_robots(state, ORIGIN, robots(0.0, OLD))
    keep_robots(state, ORIGIN, robots(5 * DAY, OLD))
    keep_robots(state, ORIGIN, robots(9 * DAY, NEW))
    last = 9 * DAY + 30 * DAY + MARGIN
    prune(database, state, last + DAY - 1.0, 30 * DAY)
    assert copy(state, OLD) is not None, "it was in force until day 9, which goes as a whole"
    prune(database, state, last + DAY, 30 * DAY)
    assert copy(state, OLD) is None
    prune(database, state, 1000 * DAY, 30 * DAY)
    assert copy(state, NEW) is not None, "it is in force"


def test_the_copy_of_a_file_that_fails_stays(state, database):
    keep_robots(state, ORIGIN, robots(0.0))
    failing = replace(state.robots.find(ORIGIN), fetched_at=900 * DAY, failing_since=900 * DAY)
    keep_robots(state, ORIGIN, failing)
    prune(database, state, 1000 * DAY, 30 * DAY)
    assert copy(state, NEW) == NEW


def test_copies_stay_while_old_records_are_left_for_later(state, database):
    for body, at in ((OLD, 0.0), (NEW, DAY)):
        keep_robots(state, ORIGIN, robots(at, body))
    deny(state, replace(DENIAL, at=DAY))
    late = 300 * DAY
    log_requests, log_denials, documents = state.evidence.old_rows(late, 30 * DAY)
    delete_in_turn(database, [log_requests, documents], lambda: True)
    assert copy(state, OLD) is not None, "the denial names it"
    delete_in_turn(database, [log_denials], lambda: True)
    delete_in_turn(database, [documents], lambda: True)
    assert copy(state, OLD) is None


def test_a_denial_has_no_evidence_of_other_gates():
    """A retry or a redirect carries what was found out about the request before."""
    found = Evidence("Allow: /", 2, hash_of(OLD), 90.0, hash_of(b"{}"))
    assert found.of_gate("robots") is found
    assert found.of_gate("blocklist") == Evidence(rule="Allow: /", blocklist=hash_of(b"{}"))
    assert found.of_gate("publicweb") == Evidence(blocklist=hash_of(b"{}"))


def test_a_denied_url_may_have_any_host(state, rows):
    deny(state, replace(DENIAL, host="a" * 300))
    assert rows(select(denials.c.host)) == [("a" * 255,)]


def test_each_day_of_the_log_goes_as_a_whole(state, database, rows):
    """Readers get the same answers whatever the hour of the pruning is."""
    moments = [100.0, DAY, 2 * DAY - 1.0, 2 * DAY]
    for at in moments:
        log_requests(state, replace(RECORD, sent_at=at))
        deny(state, replace(DENIAL, at=at))
    logged = [select(column).order_by(column) for column in (requests.c.sent_at, denials.c.at)]
    for now, left in ((41 * DAY - 1.0, moments), (41 * DAY, moments[1:])):
        prune(database, state, now, 40 * DAY)
        assert [[at for (at,) in rows(each)] for each in logged] == [left, left]
    prune(database, state, 42 * DAY - 1.0, 40 * DAY)
    with state.log() as log:
        assert [each.sent_at for each in log.requests(TimeSpan(), "a.example")] == moments[1:]


def test_what_why_judges_by_and_the_request_for_a_copy_are_found_by_an_index(state, plans):
    log_requests(state, replace(RECORD, sent_at=100.0))
    plans.clear()
    with state.log() as log:
        log.basis(log.bounds(100.0))
    row = {"paced": "a", "asked": "u", "crawl": 1, "since": 1.0, "what": "robots"}
    row |= {"name": "a", "at": 1.0, "last": 200}
    state._database.write(lambda connection: connection.execute(_NAME_COPY, row))
    assert len(plans) == 7
    for plan in plans:
        assert not re.search(r"Seq Scan on requests|SCAN requests(?! USING)", plan), plan


def test_crawls_that_write_about_one_robots_txt_never_wait_for_each_other(opened, state):
    """On PostgreSQL that would be a deadlock, which ends one of them."""
    keep_robots(state, ORIGIN, robots(0.0))

    def keeps(crawl):
        for number in range(150):
            keep_robots(crawl, ORIGIN, robots(float(number), (OLD, NEW)[number % 2]))

    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(keeps, opened()) for _ in range(2)]
        for job in jobs:
            job.result()


def test_a_denial_and_a_run_are_written_once_if_the_answer_to_their_commit_is_lost(
    state, rows, monkeypatch
):
    once = Database._once

    def twice(database, work, begin):
        once(database, work, begin)
        return once(database, work, begin)

    monkeypatch.setattr(Database, "_once", twice)
    deny(state, DENIAL)
    number = state.runs.begin(RunRecord(spider="feeds", begun=100.0))
    monkeypatch.undo()
    assert rows(select(func.count()).select_from(denials)) == [(1,)]
    assert rows(select(runs.c.id)) == [(number,)]
