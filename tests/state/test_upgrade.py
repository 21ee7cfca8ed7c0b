"""The upgrade of a state: all or nothing, beside crawls, on a full disk, for who may only read."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple

import pytest
from sqlalchemy import Engine, create_engine, event, insert, select, text, update
from sqlalchemy.pool import NullPool

from tests.helpers import oldstate
from walsh_scrapy.state import State, StateError, database, ownership, upgrades
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.ownership import RequestLimits, Worker
from walsh_scrapy.state.tables import (
    VERSION,
    declared,
    files,
    runs,
    schema_version,
    sources,
    workers,
)
from walsh_scrapy.state.views import VIEWS

FIRST = 5
RUN = {"spider": "feeds", "started_at": 1.0, "versions": "{}", "settings": "{}"}
#: Tables that an upgrade makes or fills.
CHANGED = {"readers", "reports", "choices", "ambiguous_keys", "repeated_pages", "sightings"}
#: Upgrades a state in a process that is killed before a statement, or may write no large file.
UPGRADE = """
import os, resource, signal, sys
from sqlalchemy import Engine, event
from walsh_scrapy.state import State
url, word, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
@event.listens_for(Engine, "before_cursor_execute")
def end(connection, cursor, statement, parameters, context, many):
    if word and statement.strip().startswith(word):
        os.kill(os.getpid(), signal.SIGKILL)
State(url, upgrade=print).close()
"""


def rows_of(url):
    """Return the rows of all tables that the first schema has."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        names = [
            name for name in engine.dialect.get_table_names(connection) if "sqlite" not in name
        ]
        columns = {name: "*" for name in names if name not in CHANGED}
        columns["entries"] = "key, evident_date, source, first_seen, item, run"
        columns["sources"] = "url, visited_at, not_before, etag, resumed"
        columns["declared"] = "url_key, file, url, kind, every, delay, details, host, visited_at"
        columns["overrides"] = "id, made_at, host, override, seconds, reason"
        return {
            name: sorted(map(str, connection.execute(text(f"SELECT {what} FROM {name}"))))
            for name, what in sorted(columns.items())
            if name != "schema_version"
        }


def version_of(url):
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return connection.scalar(text("SELECT version FROM schema_version"))


def run_upgrade(url, *, killed_before="", max_bytes=0):
    script = [sys.executable, "-c", UPGRADE, url, killed_before, str(max_bytes)]
    return subprocess.run(script, check=False, capture_output=True, text=True, timeout=60)


@pytest.fixture
def file(tmp_path):
    """The file of an old state."""
    oldstate.load(oldstate.OLD / f"schema-{FIRST}.sqlite3.gz", f"sqlite:///{tmp_path / 'state'}")
    return tmp_path / "state"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(upgrades, "WAIT_SECONDS", 0.0)


def test_every_row_is_kept_and_each_step_is_told(old):
    before, told = rows_of(old), []
    State(old, upgrade=told.append).close()
    assert (rows_of(old), version_of(old)) == (before, VERSION)
    assert told[0] == f"upgrading {old} from schema {FIRST} to {VERSION}"
    assert told[-1].startswith("the changes took ")
    again = []
    State(old, upgrade=again.append).close()
    assert again == []


def test_entries_are_numbered_in_the_order_of_their_times(old):
    with contextlib.closing(State(old, upgrade=print)) as state:
        rows = list(state.rows("readable_entries", order_by="first_seen, key"))
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) > 5


def test_an_upgrade_says_when_a_source_was_read_and_added(old):
    with contextlib.closing(State(old, upgrade=print)) as state:
        added = state.database.all(
            select(declared.c.added_at, files.c.read_at).join(files, files.c.id == declared.c.file)
        )
        rows = state.database.all(select(sources))
    assert added
    assert all(added_at == read_at for added_at, read_at in added)
    for row in rows:
        read_at = row.failing_since or row.visited_at
        assert row.read_at == (read_at if row.format else None), row.url
    assert {row.read_at is None for row in rows} == {True, False}


def test_a_statement_of_an_upgrade_may_take_long(postgresql_url, monkeypatch):
    """A server that changes a million rows is silent for longer than a crawl waits."""
    monkeypatch.setattr(database, "SILENCE_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr("walsh_scrapy.state.engine.SILENCE_TIMEOUT_SECONDS", 0.2)
    with create_engine(postgresql_url, poolclass=NullPool).begin() as connection:
        connection.execute(update(schema_version).values(version=FIRST))
    slow = {VERSION: lambda connection, _report: connection.exec_driver_sql("SELECT pg_sleep(1)")}
    monkeypatch.setattr(upgrades, "STEPS", slow)
    State(postgresql_url, upgrade=print).close()
    assert version_of(postgresql_url) == VERSION


def test_the_file_as_it_was_is_beside_it(file):
    file.chmod(0o640)
    other = file.with_name("state.schema-5")
    other.write_bytes(b"somebody else's")
    told = []
    State(f"sqlite:///{file}", upgrade=told.append).close()
    assert other.read_bytes() == b"somebody else's"
    copy = file.with_name("state.schema-5.2")
    assert copy.stat().st_mode & 0o777 == 0o640
    assert f"its copy is {copy}; you may delete it" in told
    assert version_of(f"sqlite:///{copy}") == FIRST
    file.write_bytes(copy.read_bytes())  # back, and once more
    State(f"sqlite:///{file}", upgrade=told.append).close()
    assert version_of(f"sqlite:///{file}") == VERSION


@pytest.mark.parametrize(
    "word", ["ALTER TABLE", "CREATE INDEX entries_by_seq", "CREATE TABLE", "UPDATE", "CREATE VIEW"]
)
def test_a_killed_upgrade_has_changed_nothing_and_is_made_again(old, word):
    before = rows_of(old)
    killed = run_upgrade(old, killed_before=word)
    assert killed.returncode == -signal.SIGKILL, killed
    assert (version_of(old), rows_of(old)) == (FIRST, before)
    with pytest.raises(StateError, match=r"not upgraded yet: call `.*walsh\S* upgrade`"):
        State(old)
    State(old, upgrade=print).close()
    assert (version_of(old), rows_of(old)) == (VERSION, before)


def test_two_processes_upgrade_at_once(old):
    script = [sys.executable, "-c", UPGRADE, old, "", "0"]
    both = [subprocess.Popen(script, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(map(bool, told)) == [False, True]
    assert version_of(old) == VERSION


@contextlib.contextmanager
def worker_of(url, beaten):
    """A worker that has beaten so many seconds ago, by the clock of the database."""
    engine = create_engine(url, poolclass=NullPool)
    now = str(time.time()) if url.startswith("sqlite") else "extract(epoch FROM now())"
    with engine.begin() as connection:
        row = RUN | {"started_at": 1_790_000_000.0}
        number = connection.execute(insert(runs).values(row).returning(runs.c.id)).scalar_one()
        beat = text(f"{now} + {45.0 - beaten}")
        row = {"id": "w", "run": number, "started_at": 0.0, "expires_at": beat, "sources": ""}
        connection.execute(insert(workers).values(row))
    yield number
    engine.dispose()


def test_it_is_refused_beside_a_living_worker_with_its_name(old, quick):
    before = version_of(old)
    with worker_of(old, beaten=1.0) as number, pytest.raises(StateError) as error:
        State(old, upgrade=print)
    assert f"run {number} (feeds), since 2026-09-21" in str(error.value)
    assert version_of(old) == before


@pytest.mark.parametrize("beaten", [16.0, 100_000.0])
def test_a_worker_that_was_killed_does_not_hold_it_up(old, quick, beaten):
    with worker_of(old, beaten=beaten):
        State(old, upgrade=print).close()
    assert version_of(old) == VERSION


def test_it_waits_until_the_last_worker_has_ended(old, monkeypatch):
    told, waits = [], []

    def leave(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            with create_engine(old, poolclass=NullPool).begin() as connection:
                connection.execute(text("DELETE FROM workers"))

    monkeypatch.setattr(upgrades.time, "sleep", leave)
    with worker_of(old, beaten=1.0):
        State(old, upgrade=told.append).close()
    assert (version_of(old), len(waits)) == (VERSION, 3)
    assert told[0] == f"{old} has an older schema; waiting for 1 crawl"


def test_too_little_space_is_refused_before_anything_is_written(file, monkeypatch):
    size = file.stat().st_size
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(9 * size, 0, 3 * size - 1))
    with pytest.raises(StateError, match=r"MiB of free space in its folder.*make room"):
        State(f"sqlite:///{file}", upgrade=print)
    assert version_of(f"sqlite:///{file}") == FIRST
    assert not list(file.parent.glob("*schema*"))


def test_a_disk_without_room_for_the_copy_changes_nothing(file):
    before = rows_of(f"sqlite:///{file}")
    failed = run_upgrade(f"sqlite:///{file}", max_bytes=file.stat().st_size // 2)
    assert failed.returncode == 1
    assert "cannot be copied" in failed.stderr
    assert (version_of(f"sqlite:///{file}"), rows_of(f"sqlite:///{file}")) == (FIRST, before)
    State(f"sqlite:///{file}", upgrade=print).close()


def test_a_disk_without_room_for_the_changes_changes_nothing(file):
    def fill(connection, _record):
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    before = rows_of(f"sqlite:///{file}")
    event.listen(Engine, "connect", fill)
    try:
        with pytest.raises(StateError, match=r"full; check the free space"):
            State(f"sqlite:///{file}", upgrade=print)
    finally:
        event.remove(Engine, "connect", fill)
    assert (version_of(f"sqlite:///{file}"), rows_of(f"sqlite:///{file}")) == (FIRST, before)
    State(f"sqlite:///{file}", upgrade=print).close()


@pytest.mark.postgresql
@pytest.mark.empty
def test_a_role_that_does_not_own_the_tables_is_refused(postgresql_url):
    oldstate.load(oldstate.OLD / f"schema-{FIRST}.sql.gz", postgresql_url)
    with create_engine(postgresql_url, poolclass=NullPool).begin() as connection:
        connection.execute(text("DROP ROLE IF EXISTS walsh_upgrade_reader"))
        connection.execute(text("CREATE ROLE walsh_upgrade_reader LOGIN"))
        connection.execute(text("GRANT pg_read_all_data TO walsh_upgrade_reader"))
    try:
        url = postgresql_url.replace("postgres@", "walsh_upgrade_reader@")
        with pytest.raises(StateError, match=r"must be owner of table.* needs the role that owns"):
            State(url, upgrade=print)
        with pytest.raises(StateError, match="not upgraded yet"):
            State(url)
    finally:
        with create_engine(postgresql_url, poolclass=NullPool).begin() as connection:
            connection.execute(text("DROP ROLE walsh_upgrade_reader"))
    assert version_of(postgresql_url) == FIRST


def test_a_file_that_may_only_be_read_is_refused(file):
    database = Database(f"sqlite:///{file}", upgrade=lambda _database: None)
    with contextlib.closing(database):
        database.read(lambda connection: connection.execute(text("PRAGMA query_only = on")))
        with pytest.raises(StateError, match="permission to write"):
            upgrades.upgrade(database, print)
    assert version_of(f"sqlite:///{file}") == FIRST


def set_version(url, version, written='{"walsh-scrapy": "0.9.0"}'):
    with create_engine(url, poolclass=NullPool).begin() as connection:
        connection.execute(update(schema_version).values(version=version))
        connection.execute(insert(runs).values(RUN | {"versions": written}))


@pytest.mark.parametrize(
    ("written", "writer"),
    [
        ('{"walsh-scrapy": "0.9.0"}', "walsh-scrapy 0.9.0"),
        ("{}", "a newer version"),
        ("no JSON", "a newer version"),
    ],
)
def test_a_newer_state_names_the_version_that_wrote_it(url, written, writer):
    State(url).close()
    set_version(url, VERSION + 1, written)
    for may_upgrade in (None, print):
        with pytest.raises(StateError, match=f"was written by {writer}, with schema {VERSION + 1}"):
            State(url, upgrade=may_upgrade)


def test_a_newer_state_without_runs_is_refused_too(url):
    State(url).close()
    set_version(url, VERSION + 1)
    with create_engine(url, poolclass=NullPool).begin() as connection:
        for view in VIEWS:
            connection.execute(text(f"DROP VIEW {view}"))
        connection.execute(text("DROP TABLE runs"))
    with pytest.raises(StateError, match="was written by a newer version"):
        State(url)


@pytest.mark.parametrize("version", [0, FIRST - 1])
def test_a_state_that_is_too_old_is_refused(url, version):
    State(url).close()
    set_version(url, version)
    with pytest.raises(StateError, match="use the version that wrote it"):
        State(url, upgrade=print)


@pytest.mark.parametrize("step", ["take", "begin"])
def test_a_worker_of_an_older_schema_sends_nothing_more(state, step):
    """It was frozen while a newer version upgraded the state."""
    worker = Worker("w", 0.0)
    if step == "begin":
        state.write(lambda connection: ownership.take(connection, "blog.example", worker))
    state.write(lambda connection: connection.execute(update(schema_version).values(version=7)))
    limits = RequestLimits(1.0, 30.0)
    transitions = {
        "take": lambda connection: ownership.take(connection, "blog.example", worker),
        "begin": lambda connection: ownership.begin(connection, "blog.example", worker, limits),
    }
    with pytest.raises(StateError, match="upgraded to schema 7 by a newer version"):
        state.write(transitions[step])


def test_a_statement_whose_table_was_changed_is_run_again(postgresql_url):
    """PostgreSQL refuses a prepared statement whose result has other columns than before."""
    with contextlib.closing(Database(postgresql_url)) as database:
        everything = text("SELECT * FROM schema_version")
        for _ in range(10):  # psycopg prepares it
            assert database.all(everything) == [(VERSION,)]
        with create_engine(postgresql_url, poolclass=NullPool).begin() as connection:
            connection.execute(text("ALTER TABLE schema_version ADD COLUMN more INTEGER"))
        assert database.all(everything) == [(VERSION, None)]
