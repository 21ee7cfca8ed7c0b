"""Reading entries while others are written; resuming sources."""

import contextlib
import math
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, BrokenBarrierError, Event

import pytest
from sqlalchemy import Engine, event, text

from tests.helpers.records import commit, entry_of, exchange
from walsh_scrapy.feeds.stores import Stores, entrywriter
from walsh_scrapy.feeds.stores.entrywriter import insert_unseen
from walsh_scrapy.policy.entrykeys import EntryKeys
from walsh_scrapy.state import State, StateError, records
from walsh_scrapy.state.database import MAX_ROWS_IN_MEMORY, Database, exists
from walsh_scrapy.state.records import LlmsTxtRecord, SourceRecord
from walsh_scrapy.tools.lists import resume

FEED, OTHER = "http://a.example/feed", "http://b.example/"


def entry(key, source=FEED, first_seen=100.0, kind="feed"):
    return entry_of(source, key, at=first_seen, kind=kind, item=f'{{"url": "http://{key}"}}')


def source(url=FEED, **fields):
    return SourceRecord(**{"url": url, "kind": "feed"} | fields)


@pytest.fixture
def statements(monkeypatch):
    """Return a list of the statements from now on."""
    seen = []
    run = records.run_by_driver
    monkeypatch.setattr(
        records, "run_by_driver", lambda *given: (seen.append(given[1]), run(*given))[1]
    )

    def note(_connection, _cursor, statement, *_):
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


def keys(state, **wanted):
    with Stores(state).entries.snapshot() as entries:
        return [entry.key for entry in entries.matching(**wanted)]


def test_entries_are_ordered_by_first_seen_then_by_key(state):
    commit(state, source(), [entry("c", first_seen=200.0), entry("z"), entry("b")])
    commit(state, source(OTHER), [entry("a", OTHER, 300.0, "llms"), entry("y", OTHER)])
    assert keys(state) == ["b", "y", "z", "c", "a"]
    assert keys(state, since=200.0) == ["c", "a"]
    assert keys(state, sources=(OTHER,)) == ["y", "a"]
    assert keys(state, since=301.0) == []


def test_crawls_that_insert_the_same_entries_do_not_deadlock(postgresql_url):
    """If each crawl inserted them in the order of its document, two crawls could deadlock."""
    State(postgresql_url).close()

    def crawl(number):
        url, new = f"http://{number}.example/", 0
        with contextlib.closing(State(postgresql_url)) as state:
            for document in range(10):
                entries = [entry(f"{document}-{post}", url) for post in range(300)]
                ordered = entries[::-1] if number % 2 else entries
                new += len(commit(state, source(url), ordered))
            return new

    with ThreadPoolExecutor(4) as crawls:
        assert sum(crawls.map(crawl, range(4))) == 10 * 300


def of_page(id_, title, page="page", url=FEED):
    return replace(entry(page, url), keys=EntryKeys(page, id_, title))


def test_crawls_at_once_keep_each_post_once_and_every_comment(postgresql_url):
    """Each crawl has the posts under ids of its own, and comments that no other has."""
    State(postgresql_url).close()

    def crawl(number):
        url, new = f"http://{number}.example/", 0
        with contextlib.closing(State(postgresql_url)) as state:
            for document in range(5):
                pages = [f"{document}-{page}" for page in range(50)]
                entries = [of_page(f"p{number}", "Post", page, url) for page in pages]
                entries += [of_page(f"c{number}", f"By: {number}", page, url) for page in pages]
                new += len(commit(state, source(url), entries))
                assert not commit(state, source(url), entries)
            return new

    with ThreadPoolExecutor(4) as crawls:
        assert sum(crawls.map(crawl, range(4))) == 5 * 50 * (1 + 4)


@pytest.mark.parametrize("known", [[], [of_page("c1", "By: Jo")]])
def test_entry_inserted_by_another_crawl_is_compared_again(postgresql_url, known, monkeypatch):
    ours, theirs = of_page("2", "Post"), of_page("1", "Post")
    looked, insert = Event(), entrywriter._Rows.insert
    with contextlib.closing(State(postgresql_url)) as state:
        commit(state, source(), known)
        commit(state, source(OTHER))
        with contextlib.closing(Database(postgresql_url)) as other, ThreadPoolExecutor(1) as crawl:

            def write(connection):
                assert insert_unseen(connection, [theirs]).new.keys() == {0}

                def looked_before(*arguments):
                    looked.set()
                    return insert(*arguments)

                monkeypatch.setattr(entrywriter._Rows, "insert", looked_before)
                entries = [ours, of_page("c2", "By: Al")]
                committed = crawl.submit(commit, state, source(OTHER), entries)
                assert looked.wait(60)
                return committed

            assert [new.keys.id for new in other.write(write).result()] == ["c2"]


@pytest.mark.parametrize("ids", [None, "id"])
def test_crawls_that_race_store_each_entry_once(url, ids):
    """Also under one page, and with links that change."""
    State(url).close()

    def document(number):
        pages = ["page", *(f"{number} {page}" for page in range(20))] * 2
        keys = [EntryKeys(page, ids and f"{ids} {at}", str(at)) for at, page in enumerate(pages)]
        return [replace(entry("", FEED), keys=each) for each in keys]

    def crawl(number):
        with contextlib.closing(State(url)) as state:
            return sum(len(commit(state, source(), document(day % 3))) for day in range(6))

    with ThreadPoolExecutor(4) as crawls:
        new = sum(crawls.map(crawl, range(4)))
    with contextlib.closing(State(url)) as state:
        assert new == len(keys(state)) == (42 if ids else 2 + 3 * 40)


def test_first_visits_that_race_are_written_one_after_the_other(postgresql_url):
    """Whichever unique index of the table PostgreSQL finds the other row in first."""
    State(postgresql_url).close()
    meet, urls = Barrier(8), [f"{FEED}/{number}" for number in range(200)]

    def crawl(failures):
        with contextlib.closing(State(postgresql_url)) as state, contextlib.ExitStack() as failed:
            failed.callback(meet.abort)
            for url in urls:
                record = source(url, failures=failures)
                write = Stores(state).sources.outcome_writer(None, record, host="a.example")
                meet.wait()
                state.write(write)
            failed.pop_all()

    with ThreadPoolExecutor(8) as crawls:
        list(crawls.map(crawl, range(8)))
    with contextlib.closing(State(postgresql_url)) as state:
        assert all(Stores(state).sources.find(url) for url in urls)


def test_an_entry_of_two_sources_that_is_inserted_at_once_is_one(postgresql_url, monkeypatch):
    """Also if it is not the first one of its page."""
    State(postgresql_url).close()
    both = Barrier(2)
    insert = entrywriter._Rows.insert

    def insert_together(rows, connection):
        if rows._rows and both.n_waiting < 2 and not both.broken:
            with contextlib.suppress(BrokenBarrierError):
                both.wait(10)
            both.abort()
        return insert(rows, connection)

    def crawl(url):
        with contextlib.closing(State(postgresql_url)) as state:
            return len(commit(state, source(url), [of_page(url, "Post", url=url)]))

    with contextlib.closing(State(postgresql_url)) as state:
        commit(state, source("http://c.example/"), [of_page("c", "Jo", url="http://c.example/")])
    monkeypatch.setattr(entrywriter._Rows, "insert", insert_together)
    with ThreadPoolExecutor(2) as crawls:
        assert sum(crawls.map(crawl, (FEED, OTHER))) == 1


def test_entries_of_a_visit_are_found_by_indexes(state, request):
    """No statement reads the entries of other sources, or all entries of its own."""
    document = [of_page("1", "A"), of_page("2", "B"), of_page(None, "C", "other")]
    commit(state, source(), document)
    plans = request.getfixturevalue("plans")
    commit(state, source(), [replace(each, first_seen=200.0) for each in document])
    of_entries = [plan for plan in plans if "entries" in plan and "INSERT" not in plan.upper()]
    assert of_entries
    scans = r"SCAN (entries|sightings|ambiguous_keys)\b|Seq Scan on (entries|sightings|ambiguous)"
    assert [plan for plan in of_entries if re.search(scans, plan)] == []


def test_a_visit_reads_no_other_entries_than_it_lists(state, monkeypatch):
    """Of its own source, and of others, with ten thousand known entries each."""
    read = []

    def note(reading, connection, places):
        read_rows(reading, connection, places)
        read.append(len(reading.rows))

    read_rows = entrywriter._Reading._read
    for url in (FEED, OTHER):
        many = [of_page("id", "A", f"{url} {number}", url) for number in range(10_000)]
        ids = [replace(each, keys=each.keys._replace(id=str(n))) for n, each in enumerate(many)]
        assert len(commit(state, source(url), ids)) == 10_000
        monkeypatch.setattr(entrywriter._Reading, "_read", note)
        assert commit(state, source(url), ids[:20]) == []
        monkeypatch.setattr(entrywriter._Reading, "_read", read_rows)
    assert read == [20, 20]


def test_known_entries_are_found_with_one_statement(url, statements):
    with contextlib.closing(State(url)) as state:
        document = [of_page(str(number), "A", f"page {number}") for number in range(20)]
        commit(state, source(), document)
        del statements[:]
        commit(state, source(), document)
        assert len([each for each in statements if "entries" in each]) == 1


def test_a_snapshot_is_of_one_moment_and_no_writer_waits_for_it(opened, state):
    many = [entry(f"{number:04}") for number in range(MAX_ROWS_IN_MEMORY * 2 + 1)]
    commit(state, source(), many)
    crawl = opened()
    with Stores(state).entries.snapshot() as entries:
        chosen = entries.matching()
        first = next(chosen)
        commit(crawl, source(OTHER), [entry("9999", OTHER, 999.0)])
        exchange(crawl)
        Stores(state).sources.resume(FEED, "a.example")
        assert [first, *chosen][-1].key == many[-1].keys.page
        assert len([*entries.matching()]) == len(many)
    assert len(keys(state)) == len(many) + 1


def test_the_newest_entry_of_a_source(state):
    commit(state, source(), [entry("a", first_seen=100.0), entry("b", first_seen=200.0)])
    with Stores(state).entries.snapshot() as entries:
        assert entries.newest(FEED).key == "b"
        assert entries.newest(OTHER) is None


def totals(state):
    """The number of entries of each source, and when the newest was first seen."""
    rows = state.rows("readable_sources")
    return {row["url"]: (row["entries"], row["newest_entry_at"]) for row in rows}


def test_entry_is_counted_for_each_source_that_has_it(state):
    """A source whose articles all are in another one too has not fallen silent."""
    commit(state, source(), [entry("a", first_seen=100.0), entry("b", first_seen=200.0)])
    commit(state, source(OTHER), [entry("b", OTHER, 300.0)])
    assert totals(state) == {FEED: (2, "1970-01-01T00:03:20Z"), OTHER: (1, "1970-01-01T00:03:20Z")}
    commit(state, source(OTHER), [entry("b", OTHER, 400.0), entry("c", OTHER, 400.0)])
    assert totals(state) == {FEED: (2, "1970-01-01T00:03:20Z"), OTHER: (2, "1970-01-01T00:06:40Z")}


def test_entry_is_new_for_its_own_source_after_another_had_it(state):
    own = [of_page("1", "Post"), of_page("2", "Comment")]
    theirs = [replace(entry, source=OTHER, is_own=False) for entry in own]
    commit(state, source())
    commit(state, source(OTHER))
    assert commit(state, source(OTHER), theirs[:1]) == theirs[:1]
    assert commit(state, source(), own) == own
    assert not commit(state, source(OTHER), theirs)
    with Stores(state).entries.snapshot() as entries:
        stored = [(entry.source, entry.also_in) for entry in entries.matching()]
    assert sorted(stored) == [(FEED, (OTHER,)), (FEED, (OTHER,)), (OTHER, ())]


@pytest.mark.parametrize(
    ("troubles", "resumed"),
    [
        ({"outcome": "gone", "not_before": math.inf, "failures": 1, "status": 410}, True),
        ({"outcome": "failed", "not_before": 9e9, "failures": 4}, True),
        ({"outcome": "fetched", "not_before": 9e9}, False),
        ({"outcome": "denied by robots", "not_before": 9e9}, False),
    ],
)
def test_resume_makes_only_gone_or_failing_sources_due(state, troubles, resumed):
    known = {"validator_url": FEED, "etag": b"x", "last_modified": b"y"}
    record = source(visited_at=1.0, failing_since=0.5, **known, **troubles)
    commit(state, record)
    assert Stores(state).sources.resume(FEED, "a.example") is resumed
    resumed_source = Stores(state).sources.find(FEED)
    assert (resumed_source.not_before, resumed_source.failures) == (
        (0.0, 0) if resumed else (record.not_before, 0)
    )
    assert resumed_source.failing_since == (None if resumed else 0.5)
    assert (resumed_source.outcome, resumed_source.status) == (record.outcome, record.status)
    assert (resumed_source.validator_url, resumed_source.etag, resumed_source.last_modified) == (
        None,
        None,
        None,
    )
    assert not Stores(state).sources.resume(FEED, "a.example")
    assert not Stores(state).sources.resume(OTHER, "a.example")


@pytest.mark.empty
def test_checking_for_a_state_creates_none(url, tmp_path):
    assert not exists(url)
    with State.existing(url) as none:
        assert none is None
    assert list(tmp_path.iterdir()) == []
    State(url).close()
    assert exists(url)
    with State.existing(url) as state:
        assert Stores(state).sources.all() == []


def test_missing_file_is_no_state_and_a_damaged_one_is_refused(tmp_path):
    file = tmp_path / "state.sqlite3"
    assert not exists(f"sqlite:///{file}")
    assert not file.exists()
    file.write_bytes(b"no database" * 100)
    with pytest.raises(StateError, match=r"state\.sqlite3 cannot be used as state"):
        exists(f"sqlite:///{file}")


def test_a_state_is_opened_while_another_process_writes(tmp_path):
    """Opening an existing state only reads, and takes no lock."""
    file = tmp_path / "state.sqlite3"
    State(f"sqlite:///{file}").close()
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with contextlib.closing(State(f"sqlite:///{file}")) as state:
            assert Stores(state).sources.all() == []
            assert keys(state) == []


def test_failure_in_a_snapshot_is_a_state_error(database, state):
    with database._engine.begin() as connection:
        views = ("VIEW readable_sources", "VIEW readable_entries", "VIEW problem_facts")
        for name in (*views, "TABLE entries"):
            connection.execute(text(f"DROP {name}"))
    with pytest.raises(StateError, match="cannot be used as state"):
        keys(state)


def test_resuming_a_page_forgets_every_llms_txt_of_it(state):
    """Also that of the host it moved to, and the URL it moved to if that is an llms.txt."""
    old, new = "http://old.example/docs", "http://new.example/docs"
    move = {"moved_to": new, "moved_since": 1.0, "move_settled": True}
    record = SourceRecord(url=old, kind="llms", failures=1, visited_at=2.0, not_before=9e9, **move)
    urls = [f"http://{host}.example/llms.txt" for host in ("old", "new")] + [new]
    for url in urls:
        commit(state, record, llmstxt=LlmsTxtRecord(url=url, due_at=9e9, problem="none"))
    assert resume(state, old, "a.example")
    assert [Stores(state).llmstxt.find(url) for url in urls] == [None, None, None]
