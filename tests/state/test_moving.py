"""The move of a state to another database and back: all or nothing, while crawls go on."""

import contextlib
import math
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.pool import NullPool

from tests.helpers import HANG_SECONDS, oldstate
from tests.helpers.records import RECORD, log_requests
from walsh_scrapy.state import State, StateError, database, engine, moving
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.tables import (
    LAST_SEQ,
    STATE_ID,
    VERSION,
    choices,
    copies,
    denials,
    entries,
    hosts,
    metadata,
    overrides,
    readers,
    requests,
    runs,
    schema_version,
    sightings,
    sources,
    workers,
)
from walsh_scrapy.state.views import VIEWS
from walsh_scrapy.testing.simulation import DAY

EMPTY = [pytest.mark.empty, pytest.mark.postgresql]
BOTH = pytest.mark.parametrize(
    "pair",
    [pytest.param(kind, marks=EMPTY) for kind in ("to postgresql", "to sqlite")],
    indirect=True,
)
#: The rows of `choices` that a database does not get from another one.
OWN = {STATE_ID, "file", "quick_check", *VIEWS}
RUN = {"spider": "feeds", "started_at": 1.0, "versions": "{}", "settings": "{}"}
#: Moves a state in a process that is killed before a statement.
MOVE = """
import os, signal, sys
from sqlalchemy import Engine, event
from walsh_scrapy.state import State
from walsh_scrapy.state.moving import move
source, target, word = sys.argv[1:]
state = State(source)
@event.listens_for(Engine, "before_cursor_execute")
def end(connection, cursor, statement, parameters, context, many):
    if statement.strip().startswith(word):
        os.kill(os.getpid(), signal.SIGKILL)
@event.listens_for(Engine, "commit")
def end_before_commit(connection):
    if word == "COMMIT":
        os.kill(os.getpid(), signal.SIGKILL)
move(state.database, target, print)
"""


@pytest.fixture
def pair(request, tmp_path, postgresql_url):
    """The URL of a state that crawls wrote, and that of an empty database of the other kind."""
    file = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    kind, (source, target) = "sqlite3", (file, postgresql_url)
    if request.param == "to sqlite":
        kind, (source, target) = "sql", (postgresql_url, file)
    oldstate.load(oldstate.OLD / f"schema-5.{kind}.gz", source)
    State(source, upgrade=print).close()
    return source, target


def move(source, target, report=lambda _line: None):
    with contextlib.closing(Database(source)) as state:
        return moving.move(state, target, report)


def change(url, *statements):
    """Execute statements in one transaction."""
    with create_engine(url, poolclass=NullPool).begin() as connection:
        for statement in statements:
            connection.execute(statement)


def scalar(url, query):
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return connection.scalar(query)


def id_of(url):
    return scalar(url, select(choices.c.value).where(choices.c.name == STATE_ID))


def rows_of(url):
    """Return the rows of all tables, with the type of each value."""
    found = {}
    with create_engine(url, poolclass=NullPool).connect() as connection:
        for table in metadata.sorted_tables:
            rows = [tuple(row) for row in connection.execute(select(table))]
            if table is choices:
                rows = [row for row in rows if row[0] not in OWN]
            found[table.name] = sorted(map(repr, rows))
    return found


def tables_of(url):
    """Return the names of all tables and views; none of a file that is missing."""
    if url.startswith("sqlite") and not Path(url.removeprefix("sqlite:///")).exists():
        return set()
    found = create_engine(url, poolclass=NullPool)
    with found.connect() as connection:
        dialect = connection.dialect
        return {*dialect.get_table_names(connection), *dialect.get_view_names(connection)}


# There and back.


def write_odd_values(url):
    """Write values that the databases store in different ways."""
    item = '{"title": "\\u0000 🙂 ü", "n": 1e400}'
    entry = {"page_key": "p", "source": "http://odd.example/feed", "kind": "feed"}
    change(
        url,
        insert(sources).values(
            url_key=-(2**63),
            url="http://odd.example/feed",
            kind="feed",
            not_before=math.inf,
            visited_at=None,
            move_settled=True,
            etag=b'"\x00\xff"',
            last_modified=b"",
            detail="🙂\n\t\x7f\u2028'\\\"",
            server_interval=5e-324,
            feed_interval=0.1 + 0.2,
        ),
        insert(entries).values(
            key="k", id_key="o", first_seen=1e308, item=item, seq=2**63 - 1, **entry
        ),
        insert(entries).values(key="n", twin=1, first_seen=0.0, item="", backfill=True, **entry),
        insert(sightings).values(key="k", source=entry["source"]),
        insert(copies).values(
            sha256="s", kind="robots", body=bytes(range(256)), first_used_at=1, last_used_at=2
        ),
        insert(readers).values(name="mail", seq=2**62, read_at=1.5),
        update(choices).where(choices.c.name == LAST_SEQ).values(value=str(2**63 - 1)),
    )


@BOTH
def test_every_value_is_the_same_there_and_back(pair, tmp_path):
    source, target = pair
    write_odd_values(source)
    rows = rows_of(source)
    last = f"sqlite:///{tmp_path / 'back.sqlite3'}"
    counts = move(source, target)
    assert rows_of(target) == rows
    assert counts == {name: len(rows[name]) for name in rows if name != "schema_version"}
    move(target, last)
    assert rows_of(last) == rows
    assert len({id_of(url) for url in (source, target, last)}) == 3


@BOTH
def test_the_target_has_the_tables_and_views_of_a_new_state(pair, tmp_path):
    source, target = pair
    move(source, target)
    assert {*metadata.tables, *VIEWS} <= tables_of(target)
    with contextlib.closing(State(target)) as state:
        assert len(list(state.rows("readable_sources"))) == 8


@BOTH
def test_foreign_keys_hold_in_the_target(pair):
    source, target = pair
    move(source, target)
    with contextlib.closing(Database(target)) as moved:
        renaming = update(sources).where(sources.c.url == "http://blog.example/feed")
        moved.change(renaming.values(url="http://blog.example/feed/"))
        renamed = select(func.count()).where(entries.c.source == "http://blog.example/feed/")
        assert moved.scalar(renamed) > 0
        unknown = insert(sightings).values(key="k", source="http://nowhere.example/")
        with pytest.raises(database.RefusedValues) as refused:
            moved.change(unknown)
    assert isinstance(refused.value.__cause__, IntegrityError)


def next_id(url, table, **values):
    with create_engine(url, poolclass=NullPool).begin() as connection:
        statement = insert(table).values(**values).returning(table.c.id)
        return connection.execute(statement).scalar_one()


@BOTH
def test_new_ids_come_after_all_that_were_ever_given(pair):
    """A copy that was deleted by hand is still named by the requests that it decided about."""
    source, target = pair
    copy = {"kind": "robots", "body": b"", "first_used_at": 1.0, "last_used_at": 1.0}
    deleted = next_id(source, copies, sha256="deleted", **copy)
    change(source, delete(copies).where(copies.c.id == deleted))
    last = {table: scalar(source, select(func.max(table.c.id))) for table in (runs, requests)}
    move(source, target)
    assert next_id(target, copies, sha256="next", **copy) == deleted + 1
    assert next_id(target, runs, **RUN) == last[runs] + 1
    with contextlib.closing(State(target)) as state:
        log_requests(state, RECORD)
    assert scalar(target, select(func.max(requests.c.id))) == last[requests] + 1


@BOTH
def test_what_is_about_a_file_stays_with_the_file(pair):
    source, target = pair
    about = [{"name": "file", "value": "1"}, {"name": "quick_check", "value": "1.0 ok"}]
    change(source, delete(choices).where(choices.c.name.in_(("file", "quick_check"))))
    change(source, insert(choices).values(about))
    move(source, target)
    with contextlib.closing(State(target)) as state:
        assert state.backups.last_check() is None
        assert state.backups.record_file() == ""


@pytest.mark.postgresql
@pytest.mark.empty
@pytest.mark.long
def test_crawls_go_on_after_each_move(postgresql_url, crawl_launcher, tmp_path):
    """Nothing is requested that is not due; holds, delays, copies and validators are kept."""
    first, last = (f"sqlite:///{tmp_path / name}" for name in ("first", "last"))
    options = {"launcher": crawl_launcher}
    for start in (0.0, DAY + 60.0):
        oldstate.crawl(first, tmp_path / "crawl", start, **options)
    with contextlib.closing(State(first, lambda: oldstate.EPOCH + oldstate.ENDED)) as state:
        state.hosts.set_delay("blog.example", 60.0, "its owner asked for it")
    move(first, postgresql_url)
    start = DAY + 7200.0
    for url in (postgresql_url, last):
        if url == last:
            move(postgresql_url, last)
        for run in oldstate.crawl(url, tmp_path / "crawl", start, **options):
            assert (run.log, run.items, run.exit_code) == ([], [], 0)
        forced, _ = oldstate.crawl(
            url, tmp_path / "crawl", start + 7200.0, arguments={"force": "1"}, **options
        )
        hits = {hit.url: hit.status for hit in forced.log}
        assert not [place for place in hits if place.endswith("/robots.txt")]
        assert not [place for place in hits if "held.example" in place]
        assert not [place for place in hits if "out.example" in place]
        assert "http://denied.example/feed" not in hits
        assert hits["http://same.example/feed"] == 304
        assert forced.items == []
        start += 14_400.0
    later, _ = oldstate.crawl(last, tmp_path / "crawl", 8 * DAY, later=True, **options)
    assert [item["title"] for item in later.items] == ["Three"]
    robots, page = (hit for hit in later.log if hit.host == "blog.example")
    assert page.started - robots.ended >= 60.0, "the delay that the operator set"


# What a target may be.


@BOTH
def test_a_state_without_rows_is_a_target(pair):
    source, target = pair
    State(target).close()
    before = id_of(target)
    move(source, target)
    assert rows_of(target) == rows_of(source)
    assert id_of(target) not in (before, id_of(source))


@BOTH
def test_tables_of_others_stay_as_they_are(pair):
    source, target = pair
    change(target, text("CREATE TABLE theirs (a INTEGER)"), text("INSERT INTO theirs VALUES (1)"))
    move(source, target)
    assert scalar(target, text("SELECT a FROM theirs")) == 1


def check_refused(source, target, words):
    """The move is refused in one line with these words, and the target is as it was before."""
    tables = tables_of(target)
    rows = rows_of(target) if "hosts" in tables else {}
    with pytest.raises(StateError) as refused:
        move(source, target)
    message = str(refused.value)
    assert "\n" not in message
    assert "nothing was copied" in message
    assert words in message
    assert tables_of(target) == tables
    assert (rows_of(target) if "hosts" in tables else {}) == rows


@BOTH
@pytest.mark.parametrize(
    ("statement", "table"),
    [
        (insert(runs).values(RUN), "runs"),
        (insert(hosts).values(host="blog.example"), "hosts"),
        (
            insert(overrides).values(
                made_at=1.0, host="blog.example", override="delay", seconds=1.0, reason="x"
            ),
            "overrides",
        ),
    ],
    ids=["run", "host", "override"],
)
def test_a_target_with_a_row_is_refused(pair, statement, table):
    source, target = pair
    State(target).close()
    change(target, statement)
    check_refused(source, target, f"already has rows, in {table}; ")


def beat(url, beaten):
    """Insert a worker that has beaten so many seconds ago, by the clock of the database."""
    now = str(time.time()) if url.startswith("sqlite") else "extract(epoch FROM now())"
    number = next_id(url, runs, **RUN | {"started_at": 1_790_000_000.0})
    expires_at = text(f"{now} + {45.0 - beaten}")
    row = {"id": "w", "run": number, "started_at": 0.0, "expires_at": expires_at}
    change(url, insert(workers).values(row))
    return f"run {number} (feeds), since 2026-09-21"


@BOTH
def test_a_target_with_a_living_worker_is_refused_with_its_name(pair):
    source, target = pair
    State(target).close()
    check_refused(source, target, beat(target, 1.0))


@BOTH
@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_target_of_another_schema_is_refused(pair, version):
    source, target = pair
    State(target).close()
    change(target, update(schema_version).values(version=version))
    check_refused(source, target, f"another schema than {VERSION}")


@BOTH
def test_a_target_with_other_tables_of_a_newer_schema_is_refused(pair):
    source, target = pair
    State(target).close()
    cascade = " CASCADE" if target.startswith("postgresql") else ""
    change(
        target,
        update(schema_version).values(version=VERSION + 1),
        text(f"DROP TABLE choices{cascade}"),
    )
    with pytest.raises(StateError, match=f"another schema than {VERSION}"):
        move(source, target)


@BOTH
def test_the_state_itself_is_no_target(pair):
    check_refused(pair[0], pair[0], "is the state itself")


@pytest.mark.empty
def test_an_empty_state_is_no_target_of_itself(url):
    """On PostgreSQL the lock of its tables would wait for the snapshot of the same tables."""
    State(url).close()
    check_refused(url, url, "is the state itself")


@pytest.mark.postgresql
@pytest.mark.empty
@pytest.mark.parametrize("has_state", [False, True])
def test_a_role_that_may_only_read_is_refused(pair_of_reader, has_state):
    source, target, owner = pair_of_reader
    if has_state:
        State(owner).close()
    tables = tables_of(owner)
    with pytest.raises(StateError, match=r"permission denied.* needs the role that owns"):
        move(source, target)
    assert tables_of(owner) == tables


@pytest.fixture
def pair_of_reader(postgresql_url, tmp_path):
    """The URL of a state, and that of an empty database for a role that may only read, and ours."""
    source = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    State(source).close()
    change(
        postgresql_url,
        text("DROP ROLE IF EXISTS walsh_moving_reader"),
        text("CREATE ROLE walsh_moving_reader LOGIN"),
        text("GRANT pg_read_all_data TO walsh_moving_reader"),
    )
    yield source, postgresql_url.replace("postgres@", "walsh_moving_reader@"), postgresql_url
    change(postgresql_url, text("DROP ROLE walsh_moving_reader"))


@pytest.mark.postgresql
@pytest.mark.empty
def test_a_role_that_may_only_read_the_tables_can_be_the_source(pair_of_reader, tmp_path):
    """It may not read the sequences."""
    _, reader, owner = pair_of_reader
    oldstate.load(oldstate.OLD / "schema-5.sql.gz", owner)
    State(owner, upgrade=print).close()
    role = "walsh_moving_reader"
    change(owner, text(f"REVOKE pg_read_all_data FROM {role}"))
    change(owner, text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"))
    target = f"sqlite:///{tmp_path / 'moved.sqlite3'}"
    try:
        move(reader, target)
        assert rows_of(target) == rows_of(owner)
    finally:
        change(owner, text(f"DROP OWNED BY {role}"))


# All or nothing.


@BOTH
@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("word", ["CREATE TABLE", "INSERT INTO requests", "COMMIT"])
def test_a_process_that_is_killed_leaves_the_target_as_it_was(pair, word, has_state):
    source, target = pair
    if has_state:
        State(target).close()
        if word == "CREATE TABLE":
            word = "LOCK TABLE" if target.startswith("postgresql") else "DELETE FROM choices"
    tables = tables_of(target)
    rows = rows_of(target) if has_state else {}
    script = [sys.executable, "-c", MOVE, source, target, word]
    killed = subprocess.run(script, check=False, capture_output=True, timeout=HANG_SECONDS)
    assert killed.returncode == -signal.SIGKILL, killed
    assert tables_of(target) == tables
    assert (rows_of(target) if has_state else {}) == rows
    move(source, target)
    assert rows_of(target) == rows_of(source)


@pytest.mark.postgresql
@pytest.mark.empty
@pytest.mark.parametrize(
    ("statement", "table", "words"),
    [
        (
            insert(denials).values(
                denied_at=1.0, host="a.example", url="x", gate="robots", reason="a\0b"
            ),
            "denials",
            "id = '5'",
        ),
        (insert(hosts).values(host="h" * 256), "hosts", "too long"),
        (insert(hosts).values(host="h" * 256), "hosts", "host = 'hhh"),
        (
            insert(hosts).values(host="a\nb", refusals=2**40),
            "hosts",
            r"out of range.*host = 'a\\nb'",
        ),
    ],
    ids=["NUL", "length", "key", "range"],
)
def test_a_refused_value_is_named_and_nothing_is_copied(
    postgresql_url, tmp_path, statement, table, words
):
    source = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    oldstate.load(oldstate.OLD / "schema-5.sqlite3.gz", source)
    State(source, upgrade=print).close()
    change(source, statement)
    with pytest.raises(StateError, match=rf"(?s)a row of {table}: .*{words}"):
        move(source, postgresql_url)
    assert tables_of(postgresql_url) == set()


@BOTH
def test_rows_that_the_target_loses_are_noticed(pair):
    source, target = pair
    State(target).close()
    is_file = target.startswith("sqlite")
    losing = (
        text("CREATE TRIGGER lose BEFORE INSERT ON hosts BEGIN SELECT RAISE(IGNORE); END")
        if is_file
        else text("CREATE RULE lose AS ON INSERT TO hosts DO INSTEAD NOTHING")
    )
    change(target, losing)
    check_refused(source, target, "0 rows of hosts after the copy")


def test_a_source_that_cannot_be_read_is_named(postgresql_url, tmp_path):
    source = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    State(source).close()
    change(source, text("INSERT INTO hosts (host) VALUES (CAST(x'ff' AS TEXT))"))
    before = rows_of(postgresql_url)
    with pytest.raises(StateError, match=rf"{source} cannot be used.*decode"):
        move(source, postgresql_url)
    assert rows_of(postgresql_url) == before


@BOTH
def test_an_answer_to_the_commit_that_was_lost_is_no_failure(pair, monkeypatch):
    source, target = pair
    once, lost = Database._run_once, []

    def lose(self, work, begin):
        result = once(self, work, begin)
        if isinstance(result, dict) and not lost:
            lost.append(result)
            error = OperationalError("COMMIT", {}, Exception("the server closed the connection"))
            error.connection_invalidated = True
            raise error
        return result

    monkeypatch.setattr(Database, "_run_once", lose)
    monkeypatch.setattr(Database, "_may_run_again", lambda *_: True)
    with contextlib.closing(Database(source)) as state:
        told = []
        assert moving.move(state, target, told.append) == lost[0]
    assert len(told) == 1
    assert rows_of(target) == rows_of(source)


# Beside crawls.


@BOTH
def test_rows_that_come_during_the_copy_stay_in_the_old_state(pair):
    source, target = pair
    before = rows_of(source)
    move(source, target, lambda _line: change(source, insert(hosts).values(host="new.example")))
    assert rows_of(target) == before
    assert scalar(source, select(hosts.c.host).where(hosts.c.host == "new.example"))


@BOTH
def test_crawls_that_go_on_with_the_old_state_are_named(pair):
    source, target = pair
    name, told = beat(source, 1.0), []
    move(source, target, told.append)
    assert told[0].startswith("crawls go on with ")
    assert name in told[0]


@pytest.mark.postgresql
@pytest.mark.empty
@pytest.mark.long
def test_a_lot_of_rows_shows_progress(postgresql_url, tmp_path):
    source, target = f"sqlite:///{tmp_path / 'state.sqlite3'}", postgresql_url
    State(source).close()
    row = "1.0, 1.0, 0.0, 'a.example', 'http://a.example/', '', 'target'"
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
    columns = "requested_at, delay, hold, host, url, gates, purpose"
    change(source, text(f"INSERT INTO requests ({columns}) {numbers} SELECT {row} FROM n"))
    told = []
    counts = move(source, target, told.append)
    total = sum(counts.values())
    assert (counts["requests"], total) == (100_000, 100_001)
    assert told == [
        f"copying {total} rows from {source} to {target}",
        f"50001 of {total} rows; now requests",
        f"{total} of {total} rows; now requests",
    ]
    assert scalar(target, select(func.count()).select_from(requests)) == counts["requests"]


@BOTH
@pytest.mark.parametrize("has_state", [False, True])
def test_a_crawl_that_starts_there_meanwhile_is_refused(pair, has_state, monkeypatch):
    """It gives up after ten seconds, here much sooner; nothing of it is in the copy."""
    source, target = pair
    if has_state:
        State(target).close()
    refused = []

    def start(_line):
        monkeypatch.setattr(engine, "LOCK_TIMEOUT_SECONDS", 0.2)
        monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 0.2)
        with pytest.raises(StateError) as error, contextlib.closing(State(target)) as state:
            state.hosts.set_pace_by("domain")
        refused.append(str(error.value))

    move(source, target, start)
    assert len(refused) == 1
    assert "lock" in refused[0]
    assert rows_of(target) == rows_of(source)


@BOTH
@pytest.mark.parametrize("has_state", [False, True])
def test_a_crawl_that_waits_for_the_copy_goes_on_with_it(pair, has_state, monkeypatch):
    source, target = pair
    if has_state:
        State(target).close()
    is_waiting, opened = threading.Event(), []
    pause = Database._pause

    def paused(self, *arguments):
        is_waiting.set()
        pause(self, *arguments)

    def run():
        with contextlib.closing(State(target)) as state:
            state.hosts.set_pace_by("host")
            opened.append((id_of(target), len(list(state.rows("readable_sources")))))

    def start(_line):
        thread.start()
        if target.startswith("sqlite"):
            assert is_waiting.wait(HANG_SECONDS)
        else:
            wait_for_a_lock(target)

    thread = threading.Thread(target=run)
    monkeypatch.setattr(Database, "_pause", paused)
    move(source, target, start)
    thread.join(HANG_SECONDS)
    assert opened == [(id_of(target), 8)]
    assert rows_of(target) == rows_of(source)


def wait_for_a_lock(url):
    """Wait until a session of a database waits for a lock."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    until = time.monotonic() + HANG_SECONDS
    while not scalar(url, waiting):
        assert time.monotonic() < until


@pytest.mark.postgresql
@pytest.mark.empty
@pytest.mark.parametrize("has_state", [False, True])
def test_a_real_crawl_that_starts_meanwhile_repeats_nothing(
    postgresql_url, crawl_launcher, tmp_path, has_state
):
    source = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    folder, results = tmp_path / "crawl", []
    oldstate.crawl(source, folder, 0.0, launcher=crawl_launcher)
    if has_state:
        State(postgresql_url).close()

    def run():
        results.extend(oldstate.crawl(postgresql_url, folder, 7200.0, launcher=crawl_launcher))

    def start(_line):
        thread.start()
        wait_for_a_lock(postgresql_url)

    thread = threading.Thread(target=run)
    move(source, postgresql_url, start)
    thread.join(HANG_SECONDS)
    assert [(result.exit_code, result.log, result.items) for result in results] == [(0, [], [])] * 2
    crawled = rows_of(source)
    assert rows_of(postgresql_url)["entries"] == crawled["entries"]
    assert len(rows_of(postgresql_url)["runs"]) == len(crawled["runs"]) + 2
