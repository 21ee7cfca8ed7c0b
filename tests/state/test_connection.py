"""The driver runs statements: values, errors, transactions, and connections that are lost."""

import contextlib
import math

import pytest
from sqlalchemy import bindparam, insert, select, text, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from walsh_scrapy.state import StateError
from walsh_scrapy.state.connection import ROWS_AT_ONCE
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.tables import runs, schema_version, sources

NAMES = ("url", "kind", "outcome", "detail", "due_at", "failures", "status", "move_settled", "etag")
ROW = {
    "url": "http://a.example/?a=%s&b=%(c)s",
    "kind": "feed",
    "outcome": "fetched",
    "detail": "100 % of “it”\u2028, %s",
    "due_at": math.inf,
    "failures": 0,
    "status": None,
    "move_settled": True,
    "etag": b'W/"\xff\x00"',
}
WRITE = insert(sources)
READ = select(*(sources.c[name] for name in NAMES)).where(sources.c.url == bindparam("key"))
URLS = select(sources.c.url).order_by(sources.c.url)


def write(database, *rows):
    with database.write() as connection:
        for row in rows:
            assert connection.run(WRITE, row) == 1


def test_values_are_read_as_they_were_written(database):
    write(database, ROW, {**ROW, "url": "b", "move_settled": False, "status": 200})
    with database.read() as connection:
        assert connection.first(READ, {"key": ROW["url"]}) == tuple(ROW.values())
        assert connection.all(READ, {"key": ROW["url"]}) == [tuple(ROW.values())]
        settled = select(sources.c.move_settled).order_by(sources.c.url)
        assert [*map(type, connection.scalars(settled))] == [bool, bool]
        assert connection.scalars(settled) == [False, True]
        assert connection.first(READ, {"key": "c"}) is None
        assert connection.scalar(READ, {"key": "c"}) is None


def test_a_row_may_name_its_values_in_any_order(database):
    write(database, ROW, dict(reversed({**ROW, "url": "b"}.items())))
    with database.read() as connection:
        assert connection.first(READ, {"key": "b"})[1:] == tuple(ROW.values())[1:]


def test_a_statement_may_have_values_itself(database):
    write(database, ROW, {**ROW, "url": "b"}, {**ROW, "url": "c"})
    with database.write() as connection:
        some = sources.c.url.in_(["b", "c", "d"])
        assert connection.run(update(sources).where(some).values(failures=3, status=None)) == 2
        least = sources.c.failures >= bindparam("least")
        assert connection.scalars(URLS.where(sources.c.url != "b", least), {"least": 3}) == ["c"]
        assert connection.scalars(URLS.where(some).limit(1)) == ["b"]


def test_many_rows_are_streamed_beside_each_other(database):
    rows = [{"version": number} for number in range(2, 2 * ROWS_AT_ONCE)]
    with database.write() as connection:
        connection.run_each(insert(schema_version), rows)
    found = select(schema_version.c.version).order_by(schema_version.c.version)
    with database.snapshot() as connection:
        both = zip(connection.stream(found), connection.stream(found), strict=True)
        assert all(one == other == (number,) for number, (one, other) in enumerate(both, 1))


def test_an_insert_returns_the_number_of_its_row(database):
    row = {"spider": "a", "begun": 1.0, "versions": "{}", "settings": "{}"}
    with database.write() as connection:
        numbers = [connection.scalar(insert(runs).returning(runs.c.id), row) for _ in "ab"]
    assert numbers == [1, 2]


def test_an_error_of_a_row_is_raised_as_such_and_rolls_the_transaction_back(database):
    with pytest.raises(IntegrityError):
        write(database, ROW, {**ROW, "url": "b"}, ROW)
    with pytest.raises(IntegrityError), database.write() as connection:
        connection.run_each(WRITE, [ROW, {**ROW, "url": "b"}, ROW])
    with database.read() as connection:
        assert connection.all(URLS) == []
    write(database, ROW)


def test_a_value_that_postgresql_refuses_is_an_error_of_the_row(postgresql_url):
    with contextlib.closing(Database(postgresql_url)) as database:
        with pytest.raises(DataError), database.write() as connection:
            connection.run(WRITE, {**ROW, "url": "a" * 5000})
        write(database, ROW)


def test_what_is_run_later_is_run_before_what_follows_and_may_fail(database):
    """On PostgreSQL it goes to the server with the next statement, or with the COMMIT."""
    with database.write() as connection:
        connection.run_later(WRITE, ROW)
        assert len(connection.all(URLS)) == 1
        connection.run_later(WRITE, {**ROW, "url": "b"})
    with pytest.raises(IntegrityError), database.write() as connection:
        connection.run_later(WRITE, ROW)
    with database.write():
        pass
    with database.read() as connection:
        assert len(connection.all(URLS)) == 2


def test_wrong_sql_is_an_error_of_the_database(database):
    with database.read() as connection, pytest.raises(DBAPIError, match="nonsense"):
        connection.run_sql("SELECT nonsense")
    with pytest.raises(StateError, match="nonsense"), database.read() as connection:
        connection.all(text("SELECT nonsense"))


def end_connection(url, connection):
    """End a connection as its server does."""
    own = connection.scalar(text("SELECT pg_backend_pid()"))
    with contextlib.closing(Database(url)) as other, other.write() as killer:
        killer.all(text("SELECT pg_terminate_backend(:pid)"), {"pid": own})


def test_a_connection_lost_in_a_transaction_is_replaced_for_the_next(postgresql_url):
    def interrupted(database):
        with database.write() as connection:
            connection.run(WRITE, ROW)
            end_connection(postgresql_url, connection)
            connection.run(WRITE, {**ROW, "url": "b"})

    with contextlib.closing(Database(postgresql_url)) as database:
        with pytest.raises(StateError) as told:
            interrupted(database)
        assert told.value.connection_lost
        write(database, {**ROW, "url": "b"})
        with database.read() as connection:
            assert connection.all(URLS) == [("b",)]


def test_a_connection_lost_before_a_statement_is_replaced_for_it(postgresql_url, caplog):
    """No statement asks first whether it is still there."""
    with contextlib.closing(Database(postgresql_url)) as database:
        with database.read() as connection:
            end_connection(postgresql_url, connection)
            assert connection.all(URLS) == []
        with database.read() as connection:
            assert connection.all(URLS) == []
        for connection in (database._writer, database._reader):
            connection.driver.close()
        write(database, ROW)
        with database.read() as connection:
            assert len(connection.all(URLS)) == 1
    told = [record.getMessage() for record in caplog.records]
    assert [line.split(" is ")[1][:4] for line in told] == ["lost", "back"] * 3
