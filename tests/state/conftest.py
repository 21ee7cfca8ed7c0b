"""A state on each database, opened as often as wanted, with a clock that a test sets."""

import contextlib

import pytest

from walsh_scrapy.state import State
from walsh_scrapy.state.connection import Connection
from walsh_scrapy.state.database import Database
from walsh_scrapy.testing.clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock(100.0)


@pytest.fixture
def opened(url, clock):
    """Open the same database as often as wanted, as several processes would."""
    with contextlib.ExitStack() as stack:

        def once():
            return stack.enter_context(contextlib.closing(State(url, clock.now)))

        yield once


@pytest.fixture
def state(opened):
    return opened()


@pytest.fixture
def database(url):
    """The same database as that of `opened` and `state`, which may not be there yet."""
    with contextlib.closing(Database(url)) as database:
        yield database


@pytest.fixture
def rows(database):
    """Return the rows that a statement gives."""

    def read(statement):
        with database.read() as connection:
            return connection.all(statement)

    return read


@pytest.fixture
def plans(monkeypatch):
    """Return a list of the plan of each statement from now on, if an index can be used."""
    found = []
    run = Connection._run

    def explain(self, compiled, row, take):
        cursor, how = self.driver.cursor(), "EXPLAIN QUERY PLAN "
        if not self.is_sqlite:  # a small table is read as a whole, if that is not forbidden
            how = "EXPLAIN "
            for node in ("seqscan", "bitmapscan", "sort"):
                cursor.execute(f"SET enable_{node} = off")
        cursor.execute(how + compiled.sql, compiled.parameters(row))
        found.append("\n".join(str(plan[-1]) for plan in cursor.fetchall()))
        return run(self, compiled, row, take)

    monkeypatch.setattr(Connection, "_run", explain)
    return found
