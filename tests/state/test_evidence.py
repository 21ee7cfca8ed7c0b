"""Denials and copies: each is kept as long as a record names it, and no longer (decision 33)."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sqlalchemy import func, select

from tests.helpers import records
from tests.helpers.records import RECORD, log_requests
from walsh_scrapy.policy.robots.access import RobotsCopy
from walsh_scrapy.state.copies import BlocklistCopy
from walsh_scrapy.state.evidence import MARGIN, Evidence, hash_of
from walsh_scrapy.state.pruning import delete_in_turn
from walsh_scrapy.state.tables import copies, denials, requests
from walsh_scrapy.state.texts import selected

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
    state.evidence.deny(DENIAL)
    columns = ("gate", "rule", "line", "robots", "run")
    assert rows(selected(denials, columns)) == [("robots", "Disallow: /", 2, hash_of(OLD), 3)]


def test_each_document_is_kept_once(state, rows):
    for at, origin in ((1.0, ORIGIN), (2.0, ORIGIN), (3.0, "http://b.example:80")):
        state.robots.keep(origin, robots(at))
    state.blocklist.keep(LIST, BlocklistCopy(b"{}", None, None, 4.0))
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
    state.robots.keep(ORIGIN, robots(1000.0), "a.example", 1)
    named = selected(requests, ("robots", "robots_at", "robots_status"))
    found = rows(named.order_by(requests.c.id))
    assert found == [(None, None, None)] * len(others) + [(hash_of(NEW), 1000.0, 200)]
    state.robots.keep(ORIGIN, RobotsCopy(1001.0, 503, failing_since=1001.0), "a.example", None)
    assert rows(named.where(requests.c.run.is_(None))) == [(None, 1001.0, 503)]
    state.robots.keep(ORIGIN, robots(1300.0), "a.example", 1)
    assert rows(select(requests.c.id).where(requests.c.robots_at == 1300.0)) == [], "too late"


def test_a_copy_goes_after_the_last_record_that_can_name_it(state, database):
    state.robots.keep(ORIGIN, robots(0.0, OLD))
    state.robots.keep(ORIGIN, robots(5 * DAY, OLD))
    state.robots.keep(ORIGIN, robots(9 * DAY, NEW))
    last = 9 * DAY + 30 * DAY + MARGIN
    prune(database, state, last + DAY - 1.0, 30 * DAY)
    assert copy(state, OLD) is not None, "it was in force until day 9, which goes as a whole"
    prune(database, state, last + DAY, 30 * DAY)
    assert copy(state, OLD) is None
    prune(database, state, 1000 * DAY, 30 * DAY)
    assert copy(state, NEW) is not None, "it is in force"


def test_the_copy_of_a_file_that_fails_stays(state, database):
    state.robots.keep(ORIGIN, robots(0.0))
    failing = replace(state.robots.find(ORIGIN), fetched_at=900 * DAY, failing_since=900 * DAY)
    state.robots.keep(ORIGIN, failing)
    prune(database, state, 1000 * DAY, 30 * DAY)
    assert copy(state, NEW) == NEW


def test_copies_stay_while_old_records_are_left_for_later(state, database):
    for body, at in ((OLD, 0.0), (NEW, DAY)):
        state.robots.keep(ORIGIN, robots(at, body))
    state.evidence.deny(replace(DENIAL, at=DAY))
    late = 300 * DAY
    log_requests, log_denials, documents, _ = state.evidence.old_rows(late, 30 * DAY)
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
    state.evidence.deny(replace(DENIAL, host="a" * 300))
    assert rows(select(denials.c.host)) == [("a" * 255,)]


def test_denials_go_with_the_log_day_by_day(state, database, rows):
    for at in (100.0, DAY):
        state.evidence.deny(replace(DENIAL, at=at))
    prune(database, state, 41 * DAY - 1.0, 40 * DAY)
    assert len(rows(select(denials.c.at))) == 2
    prune(database, state, 41 * DAY, 40 * DAY)
    assert rows(select(denials.c.at)) == [(DAY,)]


def test_crawls_that_write_about_one_robots_txt_never_wait_for_each_other(opened, state):
    """On PostgreSQL that would be a deadlock, which ends one of them."""
    state.robots.keep(ORIGIN, robots(0.0))

    def keeps(store):
        for number in range(150):
            store.keep(ORIGIN, robots(float(number), (OLD, NEW)[number % 2]))

    def sends(store):
        for _ in range(150):
            store.begin_wait(ORIGIN, "http://a.example/feed")
            store.end_wait(ORIGIN, "http://a.example/feed")

    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(each, opened().robots) for each in (keeps, sends)]
        for job in jobs:
            job.result()
