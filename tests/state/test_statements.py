"""Statements run by the driver give the values and errors that SQLAlchemy would give."""

import contextlib
import math

import pytest
from sqlalchemy import bindparam, insert, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from walsh_scrapy.state import StateError
from walsh_scrapy.state._statements import Statement, run_sql
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.tables import sources

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
WRITE = Statement(insert(sources))
READ = select(*(sources.c[name] for name in NAMES)).where(sources.c.url == bindparam("key"))


def write(database, *rows):
    with database.write() as connection:
        for row in rows:
            assert WRITE.run(connection, row) == 1


def test_values_are_read_as_they_were_written(database):
    write(database, ROW, {**ROW, "url": "b", "move_settled": False, "status": 200})
    statement = Statement(READ)
    with database.read() as connection:
        found = statement.first(connection, {"key": ROW["url"]})
        assert tuple(found) == tuple(connection.execute(READ, {"key": ROW["url"]}).one())
        assert tuple(found) == tuple(ROW.values())
        assert found[NAMES.index("move_settled")] is True
        assert statement.first(connection, {"key": "b"})[NAMES.index("move_settled")] is False
        assert statement.first(connection, {"key": "c"}) is None
        assert len(Statement(select(sources.c.url)).all(connection, {})) == 2


def test_a_row_may_name_its_values_in_any_order(database):
    write(database, ROW, dict(reversed({**ROW, "url": "b"}.items())))
    with database.read() as connection:
        assert tuple(Statement(READ).first(connection, {"key": "b"}))[1:] == tuple(ROW.values())[1:]


def test_an_error_of_a_row_is_raised_as_such_and_rolls_the_transaction_back(database):
    with pytest.raises(IntegrityError):
        write(database, ROW, {**ROW, "url": "b"}, ROW)
    with pytest.raises(IntegrityError), database.write() as connection:
        WRITE.run_each(connection, [ROW, {**ROW, "url": "b"}, ROW])
    with database.read() as connection:
        assert Statement(select(sources.c.url)).all(connection, {}) == []
    write(database, ROW)


def test_a_value_that_postgresql_refuses_is_an_error_of_the_row(postgresql_url):
    with contextlib.closing(Database(postgresql_url)) as database:
        with pytest.raises(DataError), database.write() as connection:
            WRITE.run(connection, {**ROW, "url": "a" * 5000})
        write(database, ROW)


def test_wrong_sql_is_an_error_of_the_database(database):
    with database.read() as connection, pytest.raises(DBAPIError) as told:
        run_sql(connection, "SELECT nonsense")
    assert "nonsense" in str(told.value.orig)


def lose(database, url):
    """Write a row, and another after the server has closed the connection."""
    with database.write() as connection:
        WRITE.run(connection, ROW)
        own = connection.scalar(text("SELECT pg_backend_pid()"))
        with contextlib.closing(Database(url)) as other, other.write() as killer:
            killer.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": own})
        WRITE.run(connection, {**ROW, "url": "b"})


def test_a_lost_connection_is_invalidated_and_replaced(postgresql_url):
    with contextlib.closing(Database(postgresql_url)) as database:
        with pytest.raises(StateError) as told:
            lose(database, postgresql_url)
        assert told.value.connection_lost
        write(database, {**ROW, "url": "b"})
        with database.read() as connection:
            assert Statement(select(sources.c.url)).all(connection, {}) == [("b",)]


def test_a_closed_connection_is_opened_again(postgresql_url):
    with contextlib.closing(Database(postgresql_url)) as database:
        for connection in (database._writer, database._reader):
            connection.connection.driver_connection.close()
        write(database, ROW)
        with database.read() as connection:
            assert len(Statement(select(sources.c.url)).all(connection, {})) == 1
