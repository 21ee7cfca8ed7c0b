"""The state: the same results on SQLite and PostgreSQL, and each change whole or not at all."""

import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, delete, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import NullPool
from walsh_scrapy.policy.hosttimes import HostTimes

from tests.helpers.records import BACKOFF, RECORD, SOURCE, commit, entry_of, keep_robots
from tests.helpers.troubles import fill
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.policy.robots.access import RobotsCopy
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.documents import BlocklistCopy, LlmsTxtRecord
from walsh_scrapy.state.entries import EntryFilter
from walsh_scrapy.state.sourcerecord import KnownSources, SourceRecord
from walsh_scrapy.state.tables import requests, schema_version

URL = SOURCE.url


def release(ledger, interval=1.0, host="a.example", record=RECORD, *, later=False, **answer):
    exchange = Exchange(interval=interval, **answer)
    return ledger.release(host, exchange, BACKOFF, record, later=later)


@pytest.fixture
def ours(opened):
    return opened().ledger


@pytest.fixture
def theirs(opened):
    """The ledger of another process."""
    return opened().ledger


def test_no_failure_is_lost_if_processes_record_failures_at_the_same_time(opened):
    stores = [opened().sources for _process in range(3)]

    def fail(known):
        known = known or SOURCE
        return replace(known, failures=known.failures + 1)

    def visits(store):
        return [store.change(URL, fail).record.failures for _visit in range(8)]

    with ThreadPoolExecutor(len(stores)) as threads:
        counts = [count for counts in threads.map(visits, stores) for count in counts]
    assert sorted(counts) == list(range(1, 25))
    assert stores[0].find(URL).failures == 24


def test_of_two_visits_that_end_at_once_none_is_lost(opened):
    """Also of the first two visits of a source, which has no row yet."""
    ours, theirs = opened().sources, opened().sources

    def fail(known):
        return replace(SOURCE, failures=(known.failures if known else 0) + 1)

    with ThreadPoolExecutor(1) as threads:

        def fail_meanwhile(known):
            if not meanwhile:
                meanwhile.append(threads.submit(theirs.change, URL, fail))
            return fail(known)

        for total in (2, 4):
            meanwhile = []
            ended = ours.change(URL, fail_meanwhile).record.failures
            assert {ended, meanwhile[0].result().record.failures} == {total - 1, total}


def test_a_source_that_got_another_url_and_was_visited_anew_is_another_one(opened):
    ours, theirs = opened().sources, opened().sources
    ours.change(URL, lambda _known: replace(SOURCE, failures=5))
    assert ours.find(URL).failures == 5
    theirs.rename({URL: f"{URL}/elsewhere"})
    theirs.change(URL, lambda _known: SOURCE)

    def fail(known):
        return replace(known, failures=known.failures + 1)

    assert ours.change(URL, fail).record.failures == 1


def test_a_record_from_memory_does_not_hide_what_another_process_wrote(opened):
    ours, theirs = opened().sources, opened().sources
    found = [entry("1")]
    ours.change(URL, lambda _known: replace(SOURCE, failures=1))
    assert ours.find(URL).failures == theirs.find(URL).failures == 1

    def fail(known):
        return replace(known, failures=known.failures + 1)

    assert theirs.change(URL, fail).record.failures == 2
    assert ours.change(URL, fail, found) == (replace(SOURCE, failures=3), {found[0].key})
    assert theirs.change(URL, fail).record.failures == 4
    assert theirs.resume(URL)
    assert ours.change(URL, fail).record.failures == 1


def test_only_one_of_two_processes_gets_a_host(ours, theirs, clock):
    assert ours.take("a.example", spacing=1.0, timeout=60.0).wait == 0.0
    clock.at = 100.5
    assert theirs.take("a.example", spacing=1.0, timeout=60.0).wait == 1.0
    clock.at = 102.0
    assert release(ours, 3.0).wait == 3.0
    clock.at = 103.0
    assert theirs.take("a.example", spacing=1.0, timeout=60.0).wait == 2.0
    clock.at = 105.0
    assert theirs.take("a.example", spacing=1.0, timeout=60.0).wait == 0.0
    assert ours.take("b.example", spacing=1.0, timeout=60.0).wait == 0.0


def test_a_request_is_logged_with_the_pause_that_it_had_to_keep(ours, theirs, clock, rows):
    def take(**given):
        return ours.take("a.example", 1.0, 60.0, record=RECORD, **given).wait

    assert take() == 0.0, "there was nothing before it"
    theirs.widen("a.example", 30.0)
    release(ours, 5.0)
    theirs.widen("a.example", 30.0)
    clock.at += 10.0
    assert take() > 0.0, "it has to wait"
    assert take(most=8.0) == 0.0
    release(ours, 5.0)
    theirs.pause("a.example", 7.0, "")
    clock.at += 10.0
    assert take() == 0.0
    assert rows(select(requests.c.pause).order_by(requests.c.id)) == [(0.0,), (8.0,), (7.0,)]


def test_a_late_release_keeps_the_lease_of_another_process(opened, clock):
    """This happens to a process that was stopped for longer than its lease."""
    stopped, ours, theirs = (opened().ledger for _ in range(3))
    assert stopped.take("a.example", spacing=1.0, timeout=60.0).wait == 0.0
    clock.at = 165.0
    assert ours.take("a.example", spacing=1.0, timeout=60.0).wait == 0.0
    clock.at = 166.0
    release(stopped, 1.0)
    clock.at = 170.0
    assert theirs.take("a.example", spacing=1.0, timeout=60.0).wait == 1.0, "ours is out"
    release(ours, 1.0)
    clock.at = 171.0
    assert theirs.take("a.example", spacing=1.0, timeout=60.0).wait == 0.0


def test_a_silence_is_remembered_until_the_host_answers(ours, theirs, clock):
    for host in ("a.example", "b.example"):
        ours.take(host, 1.0, 60.0)
        release(ours, host=host, status=0, unreachable=host == "a.example")
    assert theirs.silent_hosts() == {"a.example"}
    assert theirs.find("a.example").hold == 0.0, "after the first it only comes late"
    clock.at = 200.0
    theirs.take("a.example", 1.0, 60.0)
    assert release(theirs, status=0, unreachable=True).hold == 2 * 86_400.0
    times = ours.find("a.example").times
    assert (times.silences, times.silent_at) == (2, 200.0)
    clock.at += 2 * 86_400.0
    ours.take("a.example", 1.0, 60.0)
    release(ours, status=500)
    assert theirs.silent_hosts() == frozenset()


def test_a_host_whose_request_was_never_sent_is_given_back_as_it_was(ours, theirs, clock):
    ours.take("a.example", 1.0, 60.0)
    theirs.give_back("a.example")
    assert theirs.take("a.example", 1.0, 60.0).wait == 1.0, "the lease is ours"
    clock.at = 110.0
    ours.give_back("a.example")
    assert theirs.find("a.example").times == HostTimes()
    assert theirs.take("a.example", 3600.0, 60.0).wait == 0.0, "it was never asked"


def hold_many(ledger):
    for number in range(1000):
        ledger.hold(f"{number}.example", 1.0)


def test_a_full_disk_is_a_state_error_that_says_so(tmp_path):
    """SQLite reports a full disk and a file at its page limit by the same error."""
    with contextlib.closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        state._database.read(lambda connection: fill(connection, 0))
        with pytest.raises(StateError, match=r"is full; check the free space"):
            hold_many(state.ledger)


def test_an_end_is_written_with_what_came_of_it_or_not_at_all(ours, theirs, clock, rows):
    """The lease protects the host until then, and spacing counts from the end itself."""

    def write(connection):
        connection.execute(insert(schema_version), {"version": 5})

    def fail(connection):
        connection.execute(insert(schema_version), {"version": 9})
        raise RuntimeError

    def end():
        ours.take("a.example", 1.0, 60.0)
        clock.at += 1.0
        return ours.release("a.example", Exchange(interval=5.0), BACKOFF, RECORD, later=True)

    assert end().wait == 5.0
    assert theirs.take("a.example", 1.0, 60.0).wait == 1.0, "it is leased"
    assert rows(select(requests.c.url)) == []
    clock.at += 2.0
    ours.write_end("a.example", write)
    assert rows(select(schema_version.c.version)) == [(1,), (5,)]
    assert rows(select(requests.c.url)) == [(RECORD.url,)]
    assert theirs.take("a.example", 1.0, 60.0).wait == 3.0
    clock.at += 100.0
    end()
    with pytest.raises(RuntimeError):
        ours.write_end("a.example", fail)
    assert rows(select(schema_version.c.version)) == [(1,), (5,)]
    assert len(rows(select(requests.c.url))) == 1
    assert theirs.take("a.example", 1.0, 60.0).wait == 1.0, "it is still leased"
    clock.at += 2.0
    ours.write_ends()
    assert len(rows(select(requests.c.url))) == 2
    assert theirs.take("a.example", 1.0, 60.0).wait == 3.0


def test_a_request_is_logged_with_its_lease_and_has_no_end_before_its_release(
    ours, theirs, clock, rows
):
    log = select(*requests.c["sent_at", "waited", "seconds", "status", "pause", "hold"])
    sent = replace(RECORD, status=None, seconds=None)

    def take(ledger, **options):
        return ledger.take("a.example", 1.0, 60.0, record=sent, **options)

    assert take(ours).wait == 0.0
    assert rows(log) == [(100.0, 0.0, None, None, 0.0, 0.0)]
    assert take(theirs).wait > 0.0
    clock.at = 104.0
    ended = replace(RECORD, sent_at=101.5, seconds=2.5, status=429)
    release(ours, 5.0, record=ended, status=429, retry_after="30")
    whole = (100.0, 1.5, 2.5, 429, 0.0, 30.0)
    assert rows(log) == [whole]
    clock.at = 200.0
    assert take(theirs).wait == 0.0
    assert rows(log) == [whole, (200.0, 0.0, None, None, 5.0, 0.0)]
    theirs.give_back("a.example")
    assert rows(log) == [whole], "it was never sent"


def test_an_end_that_is_written_too_late_takes_nothing_from_others(ours, theirs, clock, rows):
    """A process was stopped for longer than its lease, and another has asked the host since."""
    assert ours.take("a.example", 1.0, 60.0).wait == 0.0
    clock.at += 1.0
    release(ours, 5.0, later=True)
    clock.at += 70.0
    assert theirs.take("a.example", 1.0, 60.0).wait == 0.0
    lease = theirs.find("a.example").times.lease_until
    clock.at += 1.0
    ours.write_ends()
    assert rows(select(requests.c.url)) == [(RECORD.url,)]
    assert theirs.find("a.example").times.lease_until == lease
    assert ours.take("a.example", 1.0, 60.0).wait > 0.0
    release(theirs, 1.0)
    ended = theirs.find("a.example").times.ended
    assert ended == clock.at


def test_an_end_that_was_left_for_later_is_written_before_the_next_change(ours, theirs, clock):
    for change in (lambda: ours.find("a.example"), lambda: ours.hold("a.example", 0.0)):
        clock.at += 100.0
        assert ours.take("a.example", 1.0, 60.0).wait == 0.0
        release(ours, later=True)
        change()
        assert theirs.find("a.example").reason == "spacing"


def test_a_row_from_memory_does_not_hide_what_another_process_wrote(ours, theirs, clock):
    assert ours.take("a.example", 1.0, 60.0).wait == 0.0
    clock.at = 101.0
    assert theirs.take("a.example", 1.0, 60.0).wait == 1.0
    clock.at = 101.5
    release(ours, 1.0)
    clock.at = 102.0
    assert theirs.take("a.example", 1.0, 60.0).wait == 0.5
    clock.at = 102.5
    assert theirs.take("a.example", 1.0, 60.0).wait == 0.0
    clock.at = 103.0
    assert ours.take("a.example", 1.0, 60.0).wait == 1.0, "ours remembered a free host"


def test_a_write_during_the_wait_for_the_lock_is_no_jump_of_the_clock(tmp_path):
    """No process can write between the reading of the clock and the write."""
    path = tmp_path / "state.sqlite3"
    State(f"sqlite:///{path}").close()
    with contextlib.closing(sqlite3.connect(path, timeout=0.0)) as other:
        read = []

        def clock():
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
            return read.append(None) or 100.0

        with contextlib.closing(State(f"sqlite:///{path}", clock)) as state:
            state.ledger.take("a.example", 1.0, 60.0)
            release(state.ledger, 1.0)
            state.ledger.hold("a.example", 9.0)
    assert len(read) == 3


def test_after_a_jump_back_the_ledger_counts_from_now(state, clock):
    clock.at = 10_000.0
    release(state.ledger, 5.0)
    clock.at = 6_400.0
    assert state.ledger.take("a.example", 1.0, 60.0).wait == 5.0
    clock.at = 6_404.0
    assert state.ledger.take("a.example", 1.0, 60.0).wait == 1.0, "it is noted once"
    clock.at = 6_405.0
    assert state.ledger.take("a.example", 1.0, 60.0).wait == 0.0


def test_copies_of_robots_txt_and_of_the_blocklist_come_back_as_they_were(state):
    copy = RobotsCopy(100.0, 503, b"User-agent: *\n\xff", failing_since=99.0)
    copy = copy.with_validators("https://a.example/robots.txt", b'W/"\xe9"', b"yesterday")
    keep_robots(state, "https://a.example:443", copy)
    assert state.robots.find("https://a.example:443") == copy
    assert state.robots.find("http://a.example:80") is None
    copy = BlocklistCopy(b"{}", b'W/"\xe9"', None, 100.0)
    state.blocklist.keep("https://operator.example/list.json", copy)
    assert state.blocklist.find("https://operator.example/list.json") == copy


def test_the_requests_that_a_robots_txt_made_wait_are_known_until_they_are_sent(state):
    origin, other = "https://a.example:443", "http://a.example:80"
    for each in (origin, other):
        keep_robots(state, each, RobotsCopy(100.0, 200, b""))
    for url in ("/a", "/b", "/b"):
        state.robots.begin_wait(origin, url)
    assert state.robots.find(origin).unused
    assert not state.robots.find(other).unused
    assert [state.robots.awaits(origin, url) for url in ("/a", "/b", "/c")] == [True, True, False]
    assert not state.robots.awaits(other, "/a")
    assert state.robots.end_wait(origin, "/a")
    assert state.robots.find(origin).unused
    assert not state.robots.end_wait(origin, "/b")
    assert not state.robots.find(origin).unused
    state.robots.begin_wait(origin, "/a")
    keep_robots(state, origin, RobotsCopy(200.0, 200, b""))
    assert not state.robots.awaits(origin, "/a"), "by the new copy nothing waits yet"


NASTY, KEPT = "a\0b\ud800é", "a\ufffdb?é"


def test_no_text_of_a_stranger_breaks_a_database(state, rows):
    release(state.ledger, record=replace(RECORD, url=NASTY, gates=NASTY, error=NASTY, status=None))
    source = SourceRecord(url="http://a.example/", kind="feed", outcome="failed", detail=NASTY)
    index = LlmsTxtRecord(url="http://a.example/llms.txt", asked_at=1.0, due_at=2.0, trouble=NASTY)
    commit(state, source, [entry_of(source.url, item=NASTY)], index)
    assert state.sources.find(source.url).detail == KEPT
    assert state.llmstxt.find(index.url).trouble == KEPT
    with state.entries.snapshot() as snapshot:
        assert [each.item for each in snapshot.matching(EntryFilter())] == [KEPT]
    assert rows(select(requests.c.url, requests.c.gates, requests.c.error)) == [(KEPT, KEPT, KEPT)]


def count_entries(state):
    with state.entries.snapshot() as snapshot:
        return len(list(snapshot.matching(EntryFilter())))


def entry(page, id_=None, title=None, source="http://a.example/feed"):
    """An entry of a page; without an id it has the key of its page."""
    keys = {"page_key": page, "title_key": f"{page}: {title}" if title else None}
    return entry_of(source, f"{page} {id_}" if id_ else page, item='{"title": "…"}', **keys)


def test_an_entry_is_new_once_and_a_comment_is_not_its_post(state):
    post, comments = entry("4", "p", "Post"), [entry("4", f"c{n}", f"By {n}") for n in range(3)]
    for found, new in (
        ([entry("1"), entry("2"), entry("1")], {"1", "2"}),
        ([entry("2"), entry("3")], {"3"}),
        (comments[:1], {"4 c0"}),
        ([post, *comments[:2]], {"4 p", "4 c1"}),
        ([entry("5", "p", "Post"), *comments], {"4 c2", "5 p"}),
        ([post, *comments[::-1], entry("5", "p", "New")], set()),
        ([entry("4", "q", "Post"), entry("4", "p", "B")], set()),
        ([entry("4", title="No id"), entry("5", "q", "Q")], {"5 q"}),
    ):
        assert commit(state, SOURCE, found) == new
    assert count_entries(state) == 9


def test_new_entries_of_one_page_in_one_document_are_two_or_one(state):
    found = [entry("1", "a", "A"), entry("1", "b", "B"), entry("1", "c", "A"), entry("1", "a", "C")]
    assert len(commit(state, SOURCE, found)) == count_entries(state) == 2


def test_a_thousand_entries_at_once(state):
    many = [entry(str(number)) for number in range(1500)]
    assert len(commit(state, SOURCE, many)) == 1500
    assert commit(state, SOURCE, many) == set()


def test_validators_and_entries_are_written_together_or_not_at_all(state):
    broken = entry("2", source="http://nowhere.example/")  # no such source: refused
    with pytest.raises(IntegrityError):
        commit(state, replace(SOURCE, etag=b'"1"'), [entry("1"), broken])
    assert state.sources.find(URL) is None
    assert count_entries(state) == 0


@pytest.mark.parametrize("is_later", [True, False])
def test_a_visit_is_written_with_the_end_of_its_exchange(state, rows, is_later):
    """The end alone is written if the visit cannot be, and the visit alone if the end was."""
    log = select(requests.c.status)
    broken = entry("2", source="http://nowhere.example/")
    sent = replace(RECORD, status=None, seconds=None)
    state.ledger.take("a.example", 1.0, 60.0, record=sent)
    release(state.ledger, later=is_later)
    with pytest.raises(IntegrityError):
        state.sources.change(URL, lambda _known: SOURCE, [broken], host="a.example")
    assert rows(log) == [(None if is_later else 200,)]
    state.sources.change(URL, lambda _known: SOURCE, [entry("1")], host="a.example")
    assert rows(log) == [(200,)]
    assert count_entries(state) == 1
    assert state.ledger.find("a.example").reason == "spacing"


def test_a_record_that_was_read_ahead_is_compared_where_its_host_is_leased(opened, database):
    """Another crawl has visited the source meanwhile, or it has not."""
    ours, theirs = opened().sources, opened().sources

    def is_as_recalled():
        return database.write(lambda connection: ours.is_as_recalled(connection, URL))

    assert not ours.remembers(URL)
    ours.look_ahead([URL, "http://b.example/"])
    assert ours.remembers(URL)
    assert is_as_recalled()
    for record in (SOURCE, replace(SOURCE, failures=1)):
        theirs.change(URL, lambda _known, record=record: record)
        assert ours.recall(URL) != record
        assert not is_as_recalled()
        assert ours.recall(URL) == record
        assert is_as_recalled()


def test_a_source_comes_back_as_it_was(state):
    record = SourceRecord(
        url="http://a.example/feed",
        kind="feed",
        fetched_at=100.0,
        due_at=200.0,
        outcome="failed",
        detail="the server answered 500",
        failures=3,
        validator_url="http://b.example/feed",
        etag=b'"\xff"',
        last_modified=b"yesterday",
    )
    commit(state, record)
    assert state.sources.find(record.url) == record
    assert state.sources.find("http://other.example/") is None


def test_an_llms_txt_comes_back_as_it_was_until_it_is_forgotten(state):
    record = SourceRecord(url="http://a.example/", kind="llms", outcome="fetched")
    llmstxt = LlmsTxtRecord(
        url="http://a.example/llms.txt",
        asked_at=100.0,
        due_at=200.0,
        trouble="none",
        validator_url="http://a.example/index/llms.txt",
        etag=b'"\xff"',
        last_modified=b"yesterday",
    )
    assert state.llmstxt.find(llmstxt.url) is None
    commit(state, record, llmstxt=llmstxt)
    assert state.llmstxt.find(llmstxt.url) == llmstxt
    commit(state, record)
    assert state.llmstxt.find(llmstxt.url) == llmstxt
    state.llmstxt.forget(llmstxt.url)
    assert state.llmstxt.find(llmstxt.url) is None


@pytest.mark.parametrize("versions", [[2], [11], [0], [-1], [], [1, 2]])
def test_a_state_of_an_unknown_version_is_refused_and_stays_as_it_is(url, database, rows, versions):

    def write(connection):
        connection.execute(delete(schema_version))
        for number in versions:
            connection.execute(insert(schema_version), {"version": number})

    database.write(write)
    for _ in range(2):
        with pytest.raises(StateError, match=r"use the version that wrote it, or another"):
            State(url)
    assert rows(select(schema_version.c.version)) == [(number,) for number in versions]


def test_a_source_keeps_its_record_under_another_spelling_of_its_url(state):
    old, new = "http://a.example/feed", "http://a.example/feed/"
    record = SourceRecord(
        url=old, kind="feed", fetched_at=1.0, failures=2, validator_url=old, etag=b"x"
    )
    commit(state, record, [entry("1"), entry("2")])
    for _ in range(2):  # two runs may begin with the same file
        state.sources.rename({old: new})
    assert state.sources.all() == [replace(record, url=new)]
    assert {url: count for url, (count, _) in state.sources.entry_totals().items()} == {new: 2}
    assert commit(state, replace(record, url=new), [entry("1", source=new)]) == set()


def test_a_move_is_over_once_the_source_is_declared_there(state):
    old, new = "http://a.example/feed", "http://a.example/feed/"
    record = SourceRecord(url=old, kind="feed", moved_to=new, moved_since=1.0, move_settled=True)
    commit(state, record)
    state.sources.rename({old: new})
    assert state.sources.find(new).move is None
    elsewhere = replace(record, moved_to="http://b.example/")
    assert elsewhere.with_url(new).move == elsewhere.move


def test_a_record_is_found_under_any_spelling_of_its_url():
    urls = ("http://a.example/feed", "http://a.example/feed/", "http://b.example/x")
    first, second, other = (
        SourceRecord(url=url, kind="feed", fetched_at=float(number))
        for number, url in enumerate(urls)
    )
    known = KnownSources([first, second, other])
    assert known.find(urls[0]) is first
    assert known.find("http://a.example/feed//") is second, "it was visited last"
    assert known.find("http://c.example/") is None
    assert known.others(["http://a.example/feed"]) == [other]


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("nonsense", "WALSH_STATE_URL"),
        ("mysterydb://host/db", "WALSH_STATE_URL"),
        ("postgresql+psycopg://postgres@127.0.0.1:1/none", "cannot be used"),
        ("sqlite:////proc/nowhere/state.sqlite3", "WALSH_STATE_URL"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_one_sentence(url, word):
    with pytest.raises(StateError, match=word) as refused:
        State(url)
    assert len(str(refused.value).splitlines()) == 1


def test_pace_by_may_change_once_no_host_waits(opened, clock):
    state = opened()
    state.ledger.pace_by("host")
    state.ledger.take("www.a.example", spacing=1.0, timeout=60.0)
    refused = r"paced by host, and 1 of its hosts wait.*set WALSH_PACE_BY = 'host'"
    with pytest.raises(StateError, match=refused):
        opened().ledger.pace_by("domain")
    clock.at = 101.0
    release(state.ledger, 3.0, "www.a.example", status=429, retry_after="9")
    clock.at = 109.0
    opened().ledger.pace_by("host")
    with pytest.raises(StateError):
        opened().ledger.pace_by("domain")
    clock.at = 110.5
    opened().ledger.pace_by("domain")
    opened().ledger.pace_by("host")


def test_a_failure_in_use_is_described_in_a_sentence_and_raised_as_the_caller_chose(tmp_path):
    told = []

    def failed(error):
        told.append(str(error))
        return LookupError()

    path = tmp_path / "state.sqlite3"
    with contextlib.closing(State(f"sqlite:///{path}", failed=failed)) as state:
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            other.execute("DROP TABLE robots")
        with pytest.raises(LookupError):
            state.robots.find("http://a.example:80")
    assert "no such table: robots" in told[0]


def test_a_lost_connection_is_replaced_and_nothing_is_lost(postgresql_url):
    with contextlib.closing(State(postgresql_url)) as state:
        assert state.ledger.take("a.example", spacing=1.0, timeout=60.0).wait == 0.0
        for _ in range(2):
            lose_connections(postgresql_url)
            commit(state, SOURCE, [entry("1")])
            assert state.sources.find(URL) is not None
        assert count_entries(state) == 1
        assert state.ledger.take("a.example", spacing=1.0, timeout=60.0).wait > 0.0


def test_machines_that_share_a_database_share_its_clock(postgresql_url):
    with contextlib.closing(Database(postgresql_url)) as database:
        asked = text("SELECT extract(epoch FROM now())")
        wanted = database.read(lambda connection: connection.scalar(asked))
        assert database.now() == pytest.approx(float(wanted), abs=60.0)


def lose_connections(url):
    """End all other connections to a database, as its server does when it is restarted."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
