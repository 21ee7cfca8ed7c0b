"""Transactions: committed as a whole, run again when they can be, and known when they were."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Barrier
from types import SimpleNamespace

import pytest
from sqlalchemy import Connection, create_engine, func, insert, select, text, update
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.pool import NullPool

from tests.helpers.records import SOURCE, commit, entry_of
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state import database as state_database
from walsh_scrapy.state.database import (
    CLOCK_SECONDS,
    MOST_SLEW,
    ROWS_AT_ONCE,
    Database,
    ServerClock,
)
from walsh_scrapy.state.tables import runs, schema_version

VERSIONS = select(schema_version.c.version).order_by(schema_version.c.version)
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
        with pytest.raises(IntegrityError):
            database.write(lambda connection, numbers=numbers: write(connection, *numbers))
    assert versions(database) == [1]
    database.write(lambda connection: write(connection, 9))
    assert versions(database) == [1, 9]


def test_a_value_that_postgresql_refuses_is_an_error_of_the_row(postgresql_url):
    row = {"spider": "a" * 5000, "begun": 1.0, "versions": "{}", "settings": "{}"}
    with contextlib.closing(Database(postgresql_url)) as database:
        with pytest.raises(DataError):
            database.write(lambda connection: connection.execute(insert(runs), row))
        assert versions(database) == [1]


def test_wrong_sql_is_an_error_of_the_database(database):
    with pytest.raises(StateError, match="nonsense"):
        database.read(lambda connection: connection.execute(text("SELECT nonsense")))


def test_many_rows_are_streamed_beside_each_other(database):
    numbers = range(2, 2 * ROWS_AT_ONCE)
    database.write(lambda connection: write(connection, *numbers))
    with database.snapshot() as connection:
        both = zip(connection.execute(VERSIONS), connection.execute(VERSIONS), strict=True)
        assert all(one == other == (number,) for number, (one, other) in enumerate(both, 1))


def test_no_plan_is_kept_from_when_a_table_was_empty(postgresql_url):
    kept = text("SELECT count(*), sum(generic_plans) FROM pg_prepared_statements")
    with contextlib.closing(State(postgresql_url)) as state:
        for number in range(20):
            commit(state, SOURCE, [entry_of(SOURCE.url, str(number))])
        statements, plans = state._database.read(lambda connection: connection.execute(kept).one())
    assert statements
    assert not plans


def test_what_loses_its_connection_is_run_again(postgresql_url, caplog):
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
        assert versions(database) == [1, 8, 9]
    told = [record.getMessage() for record in caplog.records]
    assert [line.split(" is ")[1][:4] for line in told] == ["lost", "back"]


def test_of_two_transactions_that_wait_for_each_other_one_is_run_again(postgresql_url):
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
        both[0].write(lambda connection: write(connection, 2))
        threads = stack.enter_context(ThreadPoolExecutor(2))
        jobs = [
            threads.submit(database.write, partial(change, order=order))
            for database, order in zip(both, ((1, 2), (2, 1)), strict=True)
        ]
        for job in jobs:
            job.result()
    assert len(tries) == 3


def test_a_transaction_that_does_nothing_for_long_is_no_lock_for_others(postgresql_url):
    """Its process may be frozen. When it goes on, it begins again."""
    limit = text("SELECT current_setting('idle_in_transaction_session_timeout')")
    with contextlib.closing(Database(postgresql_url)) as database:
        tries = []

        def freeze(connection):
            write(connection, 9)
            assert connection.scalar(limit) == f"{state_database.IDLE_SECONDS:.0f}s"
            number = connection.scalar(text("SELECT pg_backend_pid()"))
            if not tries:  # that would be long for a test
                connection.execute(text("SET idle_in_transaction_session_timeout = '10ms'"))
            there = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {number}"
            while not tries and of_server(postgresql_url, there):
                pass
            tries.append(number)

        database.write(freeze)
        assert versions(database) == [1, 9]
        assert len(tries) == 2
        with database.snapshot() as connection:
            assert connection.scalar(limit) == "0", "a reader may take its time"


@pytest.mark.parametrize("is_known", [False, True])
def test_a_visit_whose_commit_was_not_answered_is_written_once(
    postgresql_url, monkeypatch, is_known
):
    """No failure is counted twice, and its entries are still new."""
    write, lost = Connection.commit, []

    def unanswered(connection):
        write(connection)
        if not lost:
            lost.append(1)
            end(postgresql_url, connection)
            connection.execute(VERSIONS)

    failed = replace(SOURCE, fetched_at=9.0, failures=1)
    with contextlib.closing(State(postgresql_url)) as state:
        if is_known:
            commit(state, SOURCE)
        known = SOURCE if is_known else None
        monkeypatch.setattr(Connection, "commit", unanswered)
        found = [entry_of(SOURCE.url, "a"), entry_of(SOURCE.url, "b")]
        work = state.sources.outcome(known, failed, found, host="a.example")
        assert state.write(work) == {"a", "b"}
        assert lost
        assert state.sources.find(SOURCE.url) == failed
        assert commit(state, failed, found) == set()


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
        told = TRUE + self.monotonic_now + self.set
        self.pass_by(0.1)
        return told


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    clocks = SimpleNamespace(monotonic=lambda: machine.monotonic_now, time=lambda: machine.wall_now)
    monkeypatch.setattr(state_database, "time", clocks)
    return machine


def test_the_clock_of_the_server_is_looked_at_once_a_second(machine):
    clock = ServerClock()
    assert clock.is_old
    clock.measure(machine.ask)
    assert not clock.is_old
    machine.pass_by(CLOCK_SECONDS)
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
        told = TRUE + machine.monotonic_now
        machine.pass_by(10.0)
        return told

    clock.measure(ask)
    assert clock.now() == pytest.approx(TRUE + machine.monotonic_now)


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0, 2 * MOST_SLEW])
def test_our_own_time_of_day_changes_nothing(machine, seconds):
    """Nor does a machine that was suspended, whose monotonic clock stood still."""
    clock = ServerClock()
    clock.measure(machine.ask)
    machine.wall_now += seconds
    assert clock.now() == pytest.approx(TRUE + machine.monotonic_now)
    assert clock.is_old, "it may have been suspended"
    clock.measure(machine.ask)
    assert not clock.is_old
    assert clock.now() == pytest.approx(TRUE + machine.monotonic_now)


def test_a_transaction_reads_the_clock_of_its_server(postgresql_url):
    with contextlib.closing(Database(postgresql_url)) as database:
        clock = select(func.extract("epoch", func.clock_timestamp()))
        wanted = database.read(lambda connection: float(connection.scalar(clock)))
        assert database.now() == pytest.approx(wanted, abs=60.0)
