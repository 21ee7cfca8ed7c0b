"""The state: the same results on SQLite and PostgreSQL, and each change whole or not at all."""

import contextlib
import json
import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scrapy.settings import Settings
from sqlalchemy import create_engine, delete, insert, select, text
from sqlalchemy.pool import NullPool

from spiders.feeds import FeedsSpider
from tests.helpers.problems import fill
from tests.helpers.records import (
    RECORD,
    SOURCE,
    begin,
    commit,
    entry_of,
    exchange,
    hold,
    keep_robots,
    log_requests,
)
from walsh_scrapy.extensions.summary import command_of, settings_of
from walsh_scrapy.feeds.outcome import move_of
from walsh_scrapy.feeds.sources.source import Source, declaration
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.feeds.stores.entrywriter import Written
from walsh_scrapy.options import Options
from walsh_scrapy.policy.entrykeys import EntryKeys
from walsh_scrapy.policy.robots.copy import RobotsCopy
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.engine import RefusedValues
from walsh_scrapy.state.evidence import hash_of
from walsh_scrapy.state.records import BlocklistCopy, LlmsTxtRecord, SourceRecord
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.state.tables import VERSION, copies, requests, schema_version
from walsh_scrapy.tools.discover import DiscoverSpider
from walsh_scrapy.tools.mayfetch.probe import MayfetchSpider

URL = SOURCE.url


def hold_many(state):
    for number in range(1000):
        hold(state, f"{number}.example", 1.0)


def test_a_full_disk_is_a_state_error_that_says_so(tmp_path):
    """SQLite reports a full disk and a file at its page limit by the same error."""
    with contextlib.closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        state.database.read(lambda connection: fill(connection, 0))
        with pytest.raises(StateError, match=r"is full"):
            hold_many(state)


def test_write_while_waiting_for_the_lock_is_no_clock_jump(tmp_path):
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
            exchange(state)
            state.hosts.release("a.example", "nothing to release")
    assert len(read) >= 3


def test_copies_of_robots_txt_and_blocklist_round_trip(state):
    copy = RobotsCopy(100.0, 503, b"User-agent: *\n\xff", failing_since=99.0)
    copy = copy.with_validators("https://a.example/robots.txt", b'W/"\xe9"', b"yesterday")
    keep_robots(state, "https://a.example:443", copy)
    assert state.robots.find("https://a.example:443") == copy
    assert state.robots.find("http://a.example:80") is None
    copy = BlocklistCopy(hash_of(b"{}"), b'W/"\xe9"', None, 100.0, "[60.0]\na.example\t\t\xfc")
    state.blocklist.keep("https://operator.example/list.json", copy, b"{}")
    assert state.blocklist.find("https://operator.example/list.json") == copy
    assert state.blocklist.document("https://operator.example/list.json") == b"{}"
    unchanged = replace(copy, requested_at=200.0)
    state.blocklist.keep("https://operator.example/list.json", unchanged)
    assert state.blocklist.find("https://operator.example/list.json") == unchanged
    assert state.blocklist.document("https://operator.example/list.json") == b"{}"
    assert state.blocklist.document("https://operator.example/schema.json") is None


NASTY, KEPT = "a\0b\ud800é", "a\ufffdb?é"


def test_no_text_of_a_stranger_breaks_a_database(state, rows):
    log_requests(state, replace(RECORD, url=NASTY, gates=NASTY, error=NASTY, status=None))
    source = SourceRecord(url="http://a.example/", kind="feed", outcome="failed", detail=NASTY)
    index = LlmsTxtRecord(
        url="http://a.example/llms.txt", requested_at=1.0, due_at=2.0, problem=NASTY
    )
    commit(state, source, [entry_of(source.url, item=NASTY)], index)
    assert Stores(state).sources.find(source.url).detail == KEPT
    assert Stores(state).llmstxt.find(index.url).problem == KEPT
    with Stores(state).entries.snapshot() as snapshot:
        assert [entry.item for entry in snapshot.matching()] == [KEPT]
    assert rows(select(requests.c.url, requests.c.gates, requests.c.error)) == [(KEPT, KEPT, KEPT)]


def count_entries(state):
    with Stores(state).entries.snapshot() as snapshot:
        return len(list(snapshot.matching()))


def entry(page, id_=None, title=None, source="http://a.example/feed"):
    """An entry of a page, with its id and its title as their keys."""
    return entry_of(source, keys=EntryKeys(page, id_, title), item=f'{{"url": "http://{page}"}}')


def test_an_entry_is_new_once_and_a_comment_is_not_its_post(state):
    post, comments = entry("4", "p", "Post"), [entry("4", f"c{n}", f"By {n}") for n in range(3)]
    other = entry("5", "o", "Post")
    for entries, new in (
        ([entry("1"), entry("2"), entry("1")], [0, 1]),
        ([entry("2"), entry("3")], [1]),
        (comments[:1], [0]),
        ([post, *comments[:2]], [0, 2]),
        ([other, *comments], [0, 3]),
        ([post, *comments[::-1], entry("5", "o", "New")], []),
        ([entry("4", "q", "Post"), post], [0]),
        ([entry("4", title="No id"), entry("5", "r", "Q")], [0, 1]),
    ):
        assert commit(state, SOURCE, entries) == [entries[place] for place in new]
    assert count_entries(state) == 11


def test_validators_and_entries_are_written_atomically(state):
    broken = entry("2", source="http://nowhere.example/")  # no such source: refused
    with pytest.raises(RefusedValues):
        commit(state, replace(SOURCE, etag=b'"1"'), [entry("1"), broken])
    assert Stores(state).sources.find(URL) is None
    assert count_entries(state) == 0


def test_a_source_comes_back_as_it_was(state):
    record = SourceRecord(
        url="http://a.example/feed",
        kind="feed",
        visited_at=100.0,
        not_before=200.0,
        outcome="failed",
        detail="the server answered 500",
        failures=3,
        validator_url="http://b.example/feed",
        etag=b'"\xff"',
        last_modified=b"yesterday",
    )
    commit(state, record)
    assert Stores(state).sources.find(record.url) == record
    assert Stores(state).sources.find("http://other.example/") is None


def test_an_llms_txt_comes_back_as_it_was_until_it_is_forgotten(state):
    record = SourceRecord(url="http://a.example/", kind="llms", outcome="fetched")
    llmstxt = LlmsTxtRecord(
        url="http://a.example/llms.txt",
        requested_at=100.0,
        due_at=200.0,
        problem="none",
        validator_url="http://a.example/index/llms.txt",
        etag=b'"\xff"',
        last_modified=b"yesterday",
    )
    assert Stores(state).llmstxt.find(llmstxt.url) is None
    commit(state, record, llmstxt=llmstxt)
    assert Stores(state).llmstxt.find(llmstxt.url) == llmstxt
    commit(state, record)
    assert Stores(state).llmstxt.find(llmstxt.url) == llmstxt
    Stores(state).llmstxt.forget(llmstxt.url)
    assert Stores(state).llmstxt.find(llmstxt.url) is None


@pytest.mark.parametrize("versions", [[VERSION + 1], [11], [0], [-1], [], [VERSION, 11]])
def test_state_of_an_unknown_version_is_refused_unchanged(url, database, rows, versions):

    def write(connection):
        connection.execute(delete(schema_version))
        for number in versions:
            connection.execute(insert(schema_version), {"version": number})

    database.write(write)
    for _ in range(2):
        with pytest.raises(StateError, match=r"use the version that wrote it"):
            State(url)
    assert rows(select(schema_version.c.version)) == [(number,) for number in versions]


def test_source_record_follows_another_spelling_of_its_url(state):
    """As a visit under that spelling writes it; its entries follow."""
    old, new = "http://a.example/feed", "http://a.example/feed/"
    record = SourceRecord(
        url=old, kind="feed", visited_at=1.0, failures=2, validator_url=old, etag=b"x"
    )
    commit(state, record, [entry("1"), entry("2")])
    assert Stores(state).sources.find(new) == record
    for _ in range(2):
        assert commit(state, replace(record, url=new), [entry("1", source=new)]) == []
    assert Stores(state).sources.all() == [replace(record, url=new)]
    rows = state.rows("readable_sources", where="entries > 0")
    assert {row["url"]: row["entries"] for row in rows} == {new: 2}


def test_a_move_is_over_once_the_source_is_declared_there(state):
    old, new = "http://a.example/feed", "http://a.example/feed/"
    record = SourceRecord(url=old, kind="feed", moved_to=new, moved_since=1.0, move_settled=True)
    commit(state, record)
    commit(state, replace(record, url=new))
    assert move_of(Stores(state).sources.find(new)) is None
    elsewhere = replace(record, moved_to="http://b.example/")
    assert move_of(elsewhere.with_url(new)) == move_of(elsewhere)


def test_a_record_is_found_under_any_spelling_of_its_url(state):
    commit(state, SourceRecord(url="http://a.example/feed", kind="feed"))
    assert Stores(state).sources.due("http://a.example/feed//", 86_400.0, 0.0) is not None


def test_source_without_a_row_is_dropped_with_its_entries(state):
    """The operator declared it where it moved, while it was visited where it was."""
    work = Stores(state).sources.outcome_writer(SOURCE, SOURCE, [entry("1")], host="a.example")
    assert state.write(work) == Written()
    assert (Stores(state).sources.all(), count_entries(state)) == ([], 0)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("nonsense", "WALSH_STATE_URL"),
        ("mysterydb://host/db", "WALSH_STATE_URL"),
        ("postgresql+psycopg://postgres@127.0.0.1:1/none", "cannot be used"),
        ("sqlite:////proc/nowhere/state.sqlite3", "WALSH_STATE_URL"),
    ],
)
def test_state_that_cannot_be_opened_is_refused(url, word):
    with pytest.raises(StateError, match=word) as refused:
        State(url)
    assert len(str(refused.value).splitlines()) == 1


def test_failure_in_use_raises_the_error_of_the_caller(tmp_path):
    errors = []

    def failed(error):
        errors.append(str(error))
        return LookupError()

    path = tmp_path / "state.sqlite3"
    with contextlib.closing(State(f"sqlite:///{path}", wrap_error=failed)) as state:
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            other.execute("DROP TABLE robots")
        with pytest.raises(LookupError):
            state.robots.find("http://a.example:80")
    assert "no such table: robots" in errors[0]


def test_a_lost_connection_is_replaced_and_nothing_is_lost(postgresql_url):
    with contextlib.closing(State(postgresql_url)) as state:
        assert begin(state).status == "ready"
        for _ in range(2):
            lose_connections(postgresql_url)
            commit(state, SOURCE, [entry("1")])
            assert Stores(state).sources.find(URL) is not None
        assert count_entries(state) == 1
        assert state.hosts.find("a.example").reason == "in flight"


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


# The rows of runs: their begin, their end, and those that have none.


@pytest.fixture
def runs(state):
    return state.runs


def test_a_run_has_its_begin_and_then_its_end(runs):
    begun = RunRecord(
        spider="feeds", started_at=100.0, versions={"python": "3"}, settings={"x": True}
    )
    summary = {"fetched": 2, "denied": {"robots": 1}}
    number = runs.begin(begun)
    assert runs.find(number) == replace(begun, id=number)
    assert not runs.find(number).is_over
    runs.end(number, 160.0, "finished", summary)
    ended = replace(begun, id=number, ended_at=160.0, finish_reason="finished", summary=summary)
    assert runs.find(number) == ended
    assert ended.is_over
    runs.end(number, 161.0, "why\0\ud800" + 300 * "y", {})
    assert runs.find(number).finish_reason.startswith("why\ufffd?yyy"), (
        "a spider may name any reason"
    )
    assert runs.find(number + 1) is None


A_FILE, OTHER_FILE = (declaration([Source(f"http://{name}.example/feed")]) for name in "ab")


@pytest.mark.parametrize(
    ("proven_at", "declared", "visited", "is_proven"),
    [
        (None, A_FILE, 100.0, False),
        (150.0, A_FILE, 100.0, True),
        (150.0, A_FILE, 150.0, False),  # by the run of its last visit
        (150.0, A_FILE, None, True),  # never visited, but declared before
        (150.0, OTHER_FILE, None, False),  # declared since
        (150.0, b"", None, False),
    ],
)
def test_whether_another_run_proved_the_network(runs, proven_at, declared, visited, is_proven):
    earlier = runs.begin(RunRecord(spider="feeds", started_at=120.0), A_FILE)
    runs.end(earlier, 160.0, "finished", {}, proven_at)
    number = runs.begin(RunRecord(spider="feeds", started_at=300.0), declared)
    runs.end(number, 400.0, "finished", {}, 310.0)
    assert runs.is_network_proven(number, visited) is is_proven


def test_run_names_its_declaration_which_is_stored_once(runs, state):
    declared = declaration([Source("http://a.example/feed"), Source("http://b.example/", "llms")])
    begun = RunRecord(spider="feeds", started_at=100.0, settings={"x": True})
    names = [runs.find(runs.begin(begun, body)).settings for body in (declared, declared, b"")]
    assert names == [{"x": True, "declared": hash_of(declared)}] * 2 + [{"x": True}]
    with state.log() as log:
        body = log.connection.scalar(select(copies.c.body))
    assert body == b"feed http://a.example/feed\nllms http://b.example/"


def test_the_latest_runs_come_first(runs):
    numbers = [
        runs.begin(RunRecord(spider="feeds", started_at=begun)) for begun in (20.0, 10.0, 30.0)
    ]
    second, first, last = numbers
    assert [run.id for run in runs.latest(9)] == [last, second, first]
    assert [run.id for run in runs.latest(1)] == [last]
    assert [run.id for run in runs.latest(9, since=20.0)] == [last, second]


def test_the_settings_of_a_run_are_json_and_hold_no_password():
    settings = {"WALSH_STATE_URL": "postgresql://us:secret@db.example/x", "WALSH_MAX_WAIT": "inf"}
    stored = settings_of(Options.from_settings(Settings(settings)), None)
    assert "secret" not in json.dumps(stored, allow_nan=False)
    assert float(stored["max_wait"]) > 1e300


def test_runs_of_commands_are_no_crawls(runs):
    crawl = runs.begin(RunRecord(spider="feeds", started_at=10.0))
    for command in ("shell", "sources add"):
        runs.begin(RunRecord(spider="feeds", command=command, started_at=20.0))
    assert [run.id for run in runs.latest(1, only_crawls=True)] == [crawl]
    assert [run.command for run in runs.latest(9)] == ["sources add", "shell", ""]


def test_runs_that_began_or_ended_after_a_moment_can_be_left_out(runs):
    numbers = [
        runs.begin(RunRecord(spider="feeds", started_at=begun)) for begun in (9.0, 8.0, 7.0, 6.0)
    ]
    runs.end(numbers[2], 11.0, "finished", {})
    runs.end(numbers[3], 8.5, "finished", {})
    assert [run.id for run in runs.latest(9, until=8.5)] == [numbers[1], numbers[3]]


@pytest.mark.parametrize("spider", [DiscoverSpider, MayfetchSpider, FeedsSpider])
@pytest.mark.parametrize("command", ["fetch", "parse", "check", "shell", ""])
def test_a_run_knows_the_command_that_asked_for_it(spider, command):
    """`fetch`, `parse` and `check` replace `start`, `shell` opens an engine without a crawl."""
    used = type(spider.__name__, (spider,), {})
    if command not in ("", "shell"):

        async def start(self):
            yield

        start.__module__ = f"scrapy.commands.{command}"
        used.start = start  # as the command does
    crawler = SimpleNamespace(crawling=command != "shell")
    own = "" if spider is FeedsSpider else spider.name
    assert command_of(crawler, object.__new__(used)) == (command or own)
