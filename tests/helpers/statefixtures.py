"""A state on each database, opened as often as wanted, with a clock that a test sets."""

import contextlib

import pytest
from sqlalchemy import Engine, event

from tests.helpers import oldstate
from tests.helpers.engine import open_engine
from walsh_scrapy.state import State, records
from walsh_scrapy.state.database import Database
from walsh_scrapy.testing.simulation import FakeClock

ON_SERVER = (pytest.mark.postgresql, pytest.mark.empty)


def _written(*files):
    return [
        pytest.param(file, id=file.stem, marks=ON_SERVER if ".sql." in file.name else ())
        for file in sorted(files)
    ]


def _load(request, tmp_path):
    url = f"sqlite:///{tmp_path / 'walsh.sqlite3'}"
    if request.node.get_closest_marker("postgresql"):
        url = request.getfixturevalue("postgresql_url")
    oldstate.load(request.param, url)
    return url


@pytest.fixture(params=_written(*oldstate.OLD.glob("*.gz")))
def written(request, tmp_path):
    """The URL of a state that a version wrote, of this schema or an older one."""
    return _load(request, tmp_path)


@pytest.fixture(params=_written(*oldstate.older()))
def old(request, tmp_path):
    """The URL of a state that a version with an older schema wrote."""
    return _load(request, tmp_path)


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
        return database.read(lambda connection: connection.execute(statement).all())

    return read


@pytest.fixture
def plans(monkeypatch):
    """Return a list of the plan of each statement from now on, if an index can be used."""
    plans_seen = []
    run = records.run_by_driver

    def explain(connection, _cursor, statement, parameters, context, is_many):
        if not is_many and context.compiled is not None and "clock_timestamp" not in statement:
            keep_plan(connection, statement, parameters)

    def run_explained(connection, statement, parameters=None):
        if parameters is not None:
            keep_plan(connection, statement, parameters)
        return run(connection, statement, parameters)

    def keep_plan(connection, statement, parameters):
        cursor, how = connection.connection.cursor(), "EXPLAIN QUERY PLAN "
        if connection.dialect.name != "sqlite":  # else a small table would be read as a whole
            how = "EXPLAIN "
            for node in ("seqscan", "bitmapscan", "sort"):
                cursor.execute(f"SET enable_{node} = off")
        cursor.execute(how + statement, parameters)
        plans_seen.append("\n".join(str(plan[-1]) for plan in cursor.fetchall()))
        cursor.close()

    event.listen(Engine, "before_cursor_execute", explain)
    monkeypatch.setattr(records, "run_by_driver", run_explained)
    yield plans_seen
    event.remove(Engine, "before_cursor_execute", explain)


@pytest.fixture
def now():
    """The time of `engine`'s clock, in epoch seconds: a list of one."""
    return [1_700_000_000.0]


@pytest.fixture
def engine(url, tmp_path, now):
    """The tables on each database, without a state around them."""
    (tmp_path / "folder").mkdir()  # of an SQLite file
    engine = open_engine(url, lambda: now[0])
    yield engine
    engine.dispose()
