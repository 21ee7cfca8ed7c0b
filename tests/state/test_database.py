"""Transactions: committed as a whole, run again when they can be, and known when they were."""

import contextlib
import os
import re
import sqlite3
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, func, insert, inspect, make_url, select, text, update
from sqlalchemy.pool import NullPool

from tests.helpers.records import SOURCE, commit, entry_of, make_state
from tests.helpers.relay import Relay
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.state import State, StateError, database, engine
from walsh_scrapy.state.database import (
    MAX_CLOCK_AGE_SECONDS,
    MAX_ROWS_IN_MEMORY,
    MAX_SLEW_SECONDS,
    NOW,
    Database,
    ServerClock,
    clock_of,
    exists,
)
from walsh_scrapy.state.engine import (
    ENDING_TIMEOUT_SECONDS,
    IDLE_TIMEOUT_SECONDS,
    SILENCE_TIMEOUT_SECONDS,
    RefusedValues,
    Waiting,
)
from walsh_scrapy.state.tables import VERSION, runs, schema_version

VERSIONS = select(schema_version.c.version).order_by(schema_version.c.version)
SESSION_READ_ONLY = "SET default_transaction_read_only = on"
TRUE = 1_000_000.0  #: a server's time when our monotonic clock is 0


def write(connection, *numbers):
    connection.execute(insert(schema_version), [{"version": number} for number in numbers])


def versions(database):
    return database.read(lambda connection: connection.scalars(VERSIONS).all())


def of_server(url, statement):
    """Run a statement beside all states, and return what it gives."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        return connection.scalar(text(statement))


def end(url, connection):
    """End a connection as its server does."""
    number = connection.scalar(text("SELECT pg_backend_pid()"))
    of_server(url, f"SELECT pg_terminate_backend({number}, 60000)")


def test_a_transaction_is_committed_as_a_whole_or_not(database):
    def fail(connection):
        write(connection, 9)
        raise LookupError

    with pytest.raises(LookupError):
        database.write(fail)
    for numbers in ([9, 9], [9, 10, 9]):
        with pytest.raises(RefusedValues):
            database.write(lambda connection, numbers=numbers: write(connection, *numbers))
    assert versions(database) == [VERSION]
    database.write(lambda connection: write(connection, 9))
    assert versions(database) == [VERSION, 9]


def test_a_text_that_is_too_long_is_an_error_of_the_row(postgresql_url):
    row = {"spider": "a" * 5000, "started_at": 1.0, "versions": "{}", "settings": "{}"}
    with contextlib.closing(Database(postgresql_url)) as database:
        with pytest.raises(RefusedValues):
            database.write(lambda connection: connection.execute(insert(runs), row))
        assert versions(database) == [VERSION]


#: Statements with which PostgreSQL refuses a value, by the kind.
REFUSED = {
    "encoding": "SELECT convert_to(chr(8212), 'LATIN1')",
    "byte": "SELECT chr(0)",
    "number": "SELECT 'x'::integer",
    "range": "SELECT 9999999999::integer",
    "index": (
        "CREATE TEMPORARY TABLE long (word text PRIMARY KEY);"
        "INSERT INTO long SELECT string_agg(md5(n::text), '') FROM generate_series(1, 999) n"
    ),
    "trigger": "DO $$ BEGIN RAISE EXCEPTION 'not this one'; END $$",
}
#: Statements with which it fails, with a word of the remedy.
FAILED = {
    "DO $$ BEGIN RAISE USING ERRCODE = 'disk_full'; END $$": "disk space",
    "DO $$ BEGIN RAISE USING ERRCODE = 'out_of_memory'; END $$": "memory",
    "DO $$ BEGIN RAISE USING ERRCODE = 'too_many_connections'; END $$": "connection limit",
    "DO $$ BEGIN RAISE USING ERRCODE = 'io_error'; END $$": "its log",
    "DO $$ BEGIN RAISE USING ERRCODE = 'query_canceled'; END $$": "statement_timeout",
    "DO $$ BEGIN RAISE USING ERRCODE = 'admin_shutdown'; END $$": "server runs",
    "SET TRANSACTION READ ONLY; DELETE FROM runs": "default_transaction_read_only",
    "SELECT word FROM hosts": "backup",
    "SELECT * FROM lost": "backup",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_postgresql_refuses_a_value(postgresql_url, kind):
    with contextlib.closing(Database(postgresql_url)) as database:
        with pytest.raises(RefusedValues) as caught:
            database.write(lambda connection: connection.exec_driver_sql(REFUSED[kind]))
        assert "\n" not in str(caught.value)
        assert versions(database) == [VERSION], "the connection is used again"


@pytest.mark.parametrize("value", [10**30, "\ud800"])
def test_the_driver_refuses_a_value(database, value):
    query = text("SELECT CAST(:value AS BIGINT)")
    with pytest.raises(RefusedValues):
        database.write(lambda connection: connection.execute(query, {"value": value}))
    assert versions(database) == [VERSION]


def test_sqlite_refuses_a_value_that_is_too_big(tmp_path):
    def insert_big(connection):
        connection.connection.driver_connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)
        connection.execute(text("SELECT :value"), {"value": "x" * 2000})

    with contextlib.closing(Database(f"sqlite:///{tmp_path}/state.sqlite3")) as database:
        with pytest.raises(RefusedValues):
            database.write(insert_big)
        assert versions(database) == [VERSION]


@pytest.mark.parametrize("statement", FAILED)
def test_a_server_that_fails_is_named_with_its_remedy(postgresql_url, statement):
    with contextlib.closing(Database(postgresql_url)) as database:
        with pytest.raises(StateError) as caught:
            database.write(lambda connection: connection.exec_driver_sql(statement), "http://a/")
        assert FAILED[statement] in str(caught.value)
        assert str(caught.value).startswith("http://a/ is not recorded: ")


@pytest.mark.empty
def test_a_table_of_another_program_is_not_taken(url, tmp_path):
    Path(tmp_path, "folder").mkdir()
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sources (page text)"))
    with pytest.raises(StateError, match=r"sources\W* already exists; .*name another database"):
        State(url)
    assert inspect(engine).get_table_names() == ["sources"]


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_JP", "MULE_INTERNAL"])
def test_a_database_in_another_encoding_is_refused(encoded, encoding):
    url = encoded(encoding)
    with pytest.raises(StateError) as caught:
        Database(url)
    assert encoding in str(caught.value)
    assert "CREATE DATABASE" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_table_is_made_in_another_encoding(encoded):
    url = encoded("LATIN1")
    with pytest.raises(StateError):
        Database(url)
    assert not exists(url)


@pytest.mark.parametrize("place", ["environment", "url", "database"])
def test_texts_are_sent_in_utf_8(encoded, postgresql_server, monkeypatch, place):
    url = make_url(encoded("UTF8"))
    if place == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    elif place == "url":
        url = url.update_query_dict({"client_encoding": "LATIN1"})
    else:
        postgresql_server(f"ALTER DATABASE {url.database} SET client_encoding = 'LATIN1'")
    with contextlib.closing(Database(url.render_as_string(hide_password=False))) as database:
        assert database.scalar(text("SELECT chr(8212)")) == "\u2014"
        with database.snapshot() as connection:
            assert connection.scalar(text("SELECT current_setting('client_encoding')")) == "UTF8"


def test_wrong_sql_is_an_error_of_the_database(database):
    with pytest.raises(StateError, match="nonsense"):
        database.read(lambda connection: connection.execute(text("SELECT nonsense")))


def test_many_rows_are_streamed_beside_each_other(database):
    numbers = range(VERSION + 1, 2 * MAX_ROWS_IN_MEMORY)
    database.write(lambda connection: write(connection, *numbers))
    with database.snapshot() as connection:
        both = zip(connection.execute(VERSIONS), connection.execute(VERSIONS), strict=True)
        assert all(one == other == (number,) for number, (one, other) in enumerate(both, VERSION))


def test_behind_a_pooler_no_statement_is_prepared(postgresql_url):
    prepared = text("SELECT count(*) FROM pg_prepared_statements")
    with contextlib.closing(State(f"{postgresql_url}?pooler=1")) as state:
        for number in range(20):
            commit(state, SOURCE, [entry_of(SOURCE.url, str(number))])
        assert state.database.scalar(prepared) == 0


@pytest.mark.parametrize("name", ["lock_timeout", "idle_in_transaction_session_timeout"])
def test_behind_a_pooler_a_limit_is_of_a_transaction(postgresql_url, name):
    query = text(f"SELECT setting::int, reset_val::int FROM pg_settings WHERE name = '{name}'")
    with contextlib.closing(Database(f"{postgresql_url}?pooler=1")) as database:
        ((of_transaction, of_session),) = database.all(query)
        with database._engine.connect() as connection:
            ((after, _),) = connection.execute(query)
    assert of_transaction > 0
    assert after == of_session


@pytest.mark.parametrize("query", ["", "?pooler=1"])
def test_limits_of_waits_and_of_plans(postgresql_url, query):
    names = ["lock_timeout", "idle_in_transaction_session_timeout", "jit", "plan_cache_mode"]
    columns = ",".join(f"current_setting('{name}')" for name in names)
    plans = "auto" if query else "force_custom_plan"  # nothing is prepared behind a pooler
    with contextlib.closing(Database(f"{postgresql_url}{query}")) as database:
        assert tuple(database.first(text(f"SELECT {columns}"))) == ("10s", "5s", "off", plans)
        with database.snapshot() as connection:
            row = connection.execute(text(f"SELECT {columns}")).one()
            assert tuple(row)[:3] == ("10s", "0", "off")


def test_transaction_is_run_again_after_a_lost_connection(postgresql_url, caplog):
    with contextlib.closing(Database(postgresql_url)) as database:
        runs = []

        def lose(connection):
            write(connection, 8)
            if len(runs) < 2:
                runs.append(1)
                end(postgresql_url, connection)
            write(connection, 9)
            return len(runs)

        database._waiting.may_last = lambda _began, _seconds: True
        assert database.write(lose) == 2
        assert versions(database) == [VERSION, 8, 9]
    messages = [record.getMessage() for record in caplog.records]
    assert [line.split(" is ")[1][:4] for line in messages] == ["lost", "back"]


def test_a_state_that_becomes_read_only_is_waited_for(postgresql_url, monkeypatch):
    monkeypatch.setattr(database, "_RECONNECT_SECONDS", 0.0)
    attempts = []

    def fail_over(connection):
        attempts.append(1)
        if len(attempts) < 3:
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        write(connection, 9)

    with contextlib.closing(Database(postgresql_url)) as opened:
        opened.write(lambda connection: write(connection, 8))
        opened.write(fail_over)
        assert versions(opened) == [VERSION, 8, 9]


def test_the_wait_for_a_read_only_state_connects_again(postgresql_url):
    """An old connection leads to the server that was the primary one before a failover."""

    def fail_over(connection):
        write(connection, 9)
        return connection.scalar(text("SELECT pg_backend_pid()"))

    with contextlib.closing(Database(postgresql_url)) as opened:
        opened.write(lambda connection: write(connection, 8))
        opened.read(lambda connection: connection.exec_driver_sql(SESSION_READ_ONLY))
        before = opened.read(lambda connection: connection.scalar(text("SELECT pg_backend_pid()")))
        assert opened.write(fail_over) != before


def test_a_state_that_was_never_written_is_not_waited_for(postgresql_url):
    """Its role may only read, so a wait would change nothing."""
    attempts = []

    def fail(connection):
        attempts.append(1)
        write(connection, 9)

    with contextlib.closing(Database(postgresql_url)) as opened:
        opened.read(lambda connection: connection.exec_driver_sql(SESSION_READ_ONLY))
        with pytest.raises(StateError):
            opened.write(fail)
    assert attempts == [1]


def test_deadlocked_transaction_is_run_again(postgresql_url):
    meet, tries = Barrier(2), []

    def change(connection, order):
        tries.append(order)
        for at, number in enumerate(order):
            row = update(schema_version).where(schema_version.c.version == number)
            connection.execute(row.values(version=number))
            if at == 0 and len(tries) <= 2:
                meet.wait(60)

    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(contextlib.closing(Database(postgresql_url))) for _ in range(2)]
        both[0].write(lambda connection: write(connection, 9))
        threads = stack.enter_context(ThreadPoolExecutor(2))
        jobs = [
            threads.submit(database.write, partial(change, order=order))
            for database, order in zip(both, ((VERSION, 9), (9, VERSION)), strict=True)
        ]
        for job in jobs:
            job.result()
    assert len(tries) == 3


def test_idle_transaction_loses_its_locks_and_is_run_again(postgresql_url):
    """Its process may be frozen. When it goes on, it begins again."""
    limit = text("SELECT current_setting('idle_in_transaction_session_timeout')")
    with contextlib.closing(Database(postgresql_url)) as database:
        tries = []

        def freeze(connection):
            write(connection, 9)
            assert connection.scalar(limit) == f"{IDLE_TIMEOUT_SECONDS:.0f}s"
            number = connection.scalar(text("SELECT pg_backend_pid()"))
            if not tries:  # that would be long for a test
                connection.execute(text("SET idle_in_transaction_session_timeout = '10ms'"))
            there = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {number}"
            while not tries and of_server(postgresql_url, there):
                pass
            tries.append(number)

        database.write(freeze)
        assert versions(database) == [VERSION, 9]
        assert len(tries) == 2
        with database.snapshot() as connection:
            assert connection.scalar(limit) == "0", "reading has no timeout"


@pytest.mark.parametrize("is_known", [False, True])
def test_a_visit_whose_commit_was_not_answered_is_written_once(
    postgresql_url, monkeypatch, is_known
):
    """No failure is counted twice, and its entries are still new."""
    write, lost = database.commit, []

    def unanswered(connection):
        write(connection)
        if not lost:
            lost.append(1)
            end(postgresql_url, connection)
            connection.execute(VERSIONS)

    failed = replace(SOURCE, visited_at=9.0, failures=1)
    with contextlib.closing(State(postgresql_url)) as state:
        if is_known:
            commit(state, SOURCE)
        known = SOURCE if is_known else None
        monkeypatch.setattr(database, "commit", unanswered)
        entries = [entry_of(SOURCE.url, "a"), entry_of(SOURCE.url, "b")]
        work = Stores(state).sources.outcome_writer(known, failed, entries, host="a.example")
        assert state.write(work).new == {0: "a", 1: "b"}
        assert lost
        assert Stores(state).sources.find(SOURCE.url) == failed
        assert not commit(state, failed, entries)


class Machine:
    """Both clocks of a machine, and a server that takes 0.2 s to answer."""

    def __init__(self):
        self.monotonic_now = self.wall_now = 500.0
        self.set = 0.0

    def pass_by(self, seconds):
        self.monotonic_now += seconds
        self.wall_now += seconds

    def ask(self):
        self.pass_by(0.1)
        answer = TRUE + self.monotonic_now + self.set
        self.pass_by(0.1)
        return answer


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    clocks = SimpleNamespace(monotonic=lambda: machine.monotonic_now, time=lambda: machine.wall_now)
    monkeypatch.setattr("walsh_scrapy.state.database.time", clocks)
    return machine


def test_the_clock_of_the_server_is_looked_at_once_a_second(machine):
    clock = ServerClock()
    assert clock.is_old
    clock.measure(machine.ask)
    assert not clock.is_old
    machine.pass_by(MAX_CLOCK_AGE_SECONDS)
    assert not clock.is_old
    assert clock.now() == pytest.approx(TRUE + machine.monotonic_now)
    machine.set = -30.0
    machine.pass_by(0.001)
    assert clock.is_old
    clock.measure(machine.ask)
    assert clock.now() == pytest.approx(TRUE - 30.0 + machine.monotonic_now)


def test_an_answer_that_stood_still_tells_no_other_time(machine):
    clock = ServerClock()
    clock.measure(machine.ask)

    def ask():
        answer = TRUE + machine.monotonic_now
        machine.pass_by(10.0)
        return answer

    clock.measure(ask)
    assert clock.now() == pytest.approx(TRUE + machine.monotonic_now)


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0, 2 * MAX_SLEW_SECONDS])
def test_server_clock_ignores_the_local_time_of_day(machine, seconds):
    """Nor does a machine that was suspended, whose monotonic clock stood still."""
    clock = ServerClock()
    clock.measure(machine.ask)
    machine.wall_now += seconds
    assert clock.now() == pytest.approx(TRUE + machine.monotonic_now)
    assert clock.is_old, "the machine may have been suspended"
    clock.measure(machine.ask)
    assert not clock.is_old
    assert clock.now() == pytest.approx(TRUE + machine.monotonic_now)


def test_a_transaction_reads_the_clock_of_its_server(postgresql_url):
    with contextlib.closing(Database(postgresql_url)) as database:
        clock = select(func.extract("epoch", func.clock_timestamp()))
        wanted = database.read(lambda connection: float(connection.scalar(clock)))
        assert database.now() == pytest.approx(wanted, abs=60.0)


def test_each_statement_of_a_transaction_has_a_time_of_its_own(postgresql_url):
    """One that waited for a lock would else count its delays from before the wait."""

    def read(connection):
        return [connection.scalar(select(NOW), clock_of(connection)) for _ in range(2)]

    with contextlib.closing(Database(postgresql_url)) as database:
        first, second = database.read(read)
    assert first < second


# The waits for a database end in time, and sooner once the run is to end.


def test_wait_is_short_and_the_last_one_once_the_run_ends(monkeypatch, clock):
    goes_on = [True]
    monkeypatch.setattr("walsh_scrapy.state.engine.time.monotonic", clock.now)
    waits = Waiting(lambda: goes_on[0])
    clock.at += 10.0
    assert waits.may_last(began=100.0, seconds=10.0)
    goes_on[0] = False
    assert waits.may_last(began=clock.at - ENDING_TIMEOUT_SECONDS, seconds=10.0)
    assert not waits.may_last(began=100.0, seconds=10.0)
    is_begun = waits.may_last(began=clock.at, seconds=10.0)
    assert not is_begun, "there is no wait after one that failed"


def test_a_short_lock_is_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "state.sqlite3"
    with (
        contextlib.closing(State(f"sqlite:///{path}")) as state,
        contextlib.closing(sqlite3.connect(path)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        found = []

        def end_lock(self, began, _seconds):
            found.append(time.monotonic() - began)
            other.rollback()
            return True

        monkeypatch.setattr(Waiting, "may_last", end_lock)
        commit(state, SOURCE)
        assert Stores(state).sources.find(SOURCE.url) == SOURCE
    assert len(found) == 1


def test_readers_of_a_state_that_is_locked_as_a_whole_wait_too(tmp_path, monkeypatch):
    monkeypatch.setattr("walsh_scrapy.state.database.LOCK_TIMEOUT_SECONDS", 0.0)
    path = tmp_path / "state.sqlite3"
    State(f"sqlite:///{path}").close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateError, match="database is locked"):
            State(f"sqlite:///{path}")


@contextlib.contextmanager
def relayed(url):
    """Give a relay to the server of a URL, and the URL through the relay."""
    server = make_url(url)
    with Relay(server.host, server.port) as relay:
        yield relay, server.set(port=relay.port).render_as_string(hide_password=False)


@pytest.mark.parametrize("size", [1, 30_000_000])
def test_a_server_that_falls_silent_is_not_asked_again(postgresql_url, monkeypatch, size):
    """What it is sent may be more than the buffers of the connection take."""
    errors, real = [], time.monotonic
    with relayed(postgresql_url) as (relay, url):
        later = SimpleNamespace(
            time=time.time,
            monotonic=lambda: real() + SILENCE_TIMEOUT_SECONDS * relay.asked.is_set(),
        )
        for module in (database, engine):
            monkeypatch.setattr(module, "time", later)

        def failed(error):
            errors.append(str(error))
            return LookupError()

        with contextlib.closing(Database(url, failed)) as opened:

            def write(connection):
                relay.silence()
                connection.execute(text("SELECT length(:sent)"), {"sent": "x" * size})

            for _ in range(2):
                with pytest.raises(LookupError):
                    opened.write(write)
    assert errors[0] == errors[1], "the server was not asked again"
    assert re.search("silent for [0-9]+ s", errors[0])


def test_silent_server_is_given_up_at_the_end_of_a_run(postgresql_url):
    with relayed(postgresql_url) as (relay, url):
        state = State(url, may_wait=lambda: not relay.asked.is_set())
        with contextlib.closing(state):
            relay.silence()
            relay.end_connections()
            before = relay.connections
            for _ in range(5):
                with pytest.raises(StateError, match="timeout expired"):
                    commit(state, SOURCE)
            assert relay.connections == before + 1, "there is no wait after one that failed"


def test_connections_have_tcp_timeouts_that_a_url_can_change(postgresql_url):
    def of(url):
        with contextlib.closing(Database(url)) as opened, opened.snapshot() as connection:
            return connection.connection.driver_connection.info.get_parameters()

    assert of(postgresql_url)["tcp_user_timeout"] == "30000"
    changed = of(f"{postgresql_url}?keepalives_idle=60")
    assert (changed["keepalives_idle"], changed["keepalives_count"]) == ("60", "4")


# A state that this user may not write is refused with one line, and stays as it is.

NOBODY = 65534


@pytest.fixture
def path():
    """The path of a state in a folder that every user can reach, unlike that of `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "folder" / "state.sqlite3"
        make_state(f"sqlite:///{path}")
        yield path
        path.parent.chmod(0o700)


@contextlib.contextmanager
def bound_by_permissions():
    """Be another user in a block, if this one is root, who may write everywhere."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "why"),
    [
        (0o444, 0o777, "attempt to write a readonly database"),
        (0o666, 0o555, "attempt to write a readonly database"),
        (0o000, 0o777, "unable to open database file"),
        (0o666, 0o600, "Permission denied"),
        (None, 0o555, "unable to open database file"),
    ],
)
def test_unwritable_state_is_refused_with_one_line(path, file_mode, folder_mode, why):
    path.unlink() if file_mode is None else path.chmod(file_mode)
    path.parent.chmod(folder_mode)
    with bound_by_permissions(), pytest.raises(StateError) as refused:
        make_state(f"sqlite:///{path}")
    (line,) = str(refused.value).splitlines()
    assert why in line
    assert "permission to" in line
    path.parent.chmod(0o700)
    if file_mode is not None:
        path.chmod(0o600)
        with contextlib.closing(State(f"sqlite:///{path}")) as state:
            assert Stores(state).sources.find(SOURCE.url) == SOURCE
