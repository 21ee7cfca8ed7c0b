"""Statements that the driver runs itself: rows, errors and lists are as SQLAlchemy's."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import bindparam, delete, func, insert, literal, select, update
from sqlalchemy.exc import DBAPIError, NoResultFound

from walsh_scrapy.state import State, records
from walsh_scrapy.state.records import is_in, text_list
from walsh_scrapy.state.tables import copies, hosts, requests, runs, sources

#: A row for each type of column: numbers, texts, bytes, truths, and NULL.
ROWS = {
    copies: {
        "sha256": "é" * 64, "kind": "robots", "body": b"\0\xff", "first_used_at": 0.5,
        "last_used_at": 1e300,
    },
    requests: {
        "requested_at": 1.25, "delay": 1.0, "hold": 0.0, "host": "a.example", "gates": "",
        "url": "http://a.example/\U0001f40d", "purpose": "target", "conditional": True,
        "has_validator": False, "status": None, "robots": 2**40,
    },
}  # fmt: skip
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)


@pytest.fixture
def database(url):
    with contextlib.closing(State(url)) as state:
        yield state.database


@pytest.mark.parametrize("table", ROWS, ids=str)
def test_a_row_is_as_sqlalchemy_reads_and_writes_it(database, table):
    row = ROWS[table]
    names = (*row, *(name for name in ("source", "error") if name in table.c))
    columns = select(*(table.c[name] for name in names))

    def compare(connection):
        returned = records.execute(connection, insert(table).returning(*table.c[names]), row).one()
        connection.execute(insert(table).values(**row | _another(table)))
        ours = [list(found) for found in records.execute(connection, columns, {})]
        theirs = [list(found) for found in connection.execute(columns)]
        return list(returned), ours, theirs

    returned, ours, theirs = database.write(compare)
    assert ours == theirs
    assert [[type(value) for value in found] for found in ours] == [
        [type(value) for value in found] for found in theirs
    ]
    assert returned == ours[0]
    assert dict(zip(names, returned, strict=True)).items() >= row.items()


def _another(table):
    return {"sha256": "another"} if table is copies else {}


def test_the_number_of_changed_rows_is_that_of_the_driver(database):
    rows = [{"host": f"{number}.example"} for number in range(3)]
    change = update(hosts).where(hosts.c.host != bindparam("but")).values(owner="us")

    def write(connection):
        made = records.execute_for_each(connection, insert(hosts), rows).rowcount
        return made, records.execute(connection, change, {"but": "0.example"}).rowcount

    assert database.write(write) == (3, 2)


def test_no_row_is_none_or_an_error(database):
    nothing = select(hosts.c.host, hosts.c.owner).where(hosts.c.host == bindparam("key"))

    def read(connection):
        rows = records.execute(connection, nothing, {"key": "none"})
        assert (rows.first(), rows.scalar(), list(rows.all())) == (None, None, [])
        with pytest.raises(NoResultFound):
            rows.one()

    database.read(read)


TWICE = [{"host": "a.example"}] * 2


@pytest.mark.parametrize(
    ("statement", "params"),
    [
        pytest.param(insert(hosts), TWICE, id="a key that exists"),
        pytest.param(insert(sources), {"url_key": 1, "url": "u"}, id="a column that is missing"),
        pytest.param(insert(hosts), {"host": "a\0b"}, id="a text that cannot be stored"),
        pytest.param(insert(hosts), {"host": "a" * 300}, id="a text that is too long"),
        pytest.param(select(literal("[").op("->>")(literal("a"))), {}, id="no JSON"),
        pytest.param(select(func.nonesuch()), {}, id="no function"),
    ],
)
def test_an_error_is_of_the_kind_that_sqlalchemy_raises(database, statement, params):
    def error_of(run):
        try:
            database._run_once(run, "BEGIN")
        except Exception as error:  # noqa: BLE001 - of any kind
            return type(error), type(getattr(error, "orig", None))
        return None

    def by_driver(connection):
        if isinstance(params, list):
            records.execute_for_each(connection, statement, params)
        else:
            records.execute(connection, statement, params)
        raise ValueError

    def by_sqlalchemy(connection):
        connection.execute(statement, params)
        raise ValueError

    assert error_of(by_driver) == error_of(by_sqlalchemy)


@pytest.mark.parametrize("place", ["statement", "list", "commit"])
def test_a_lost_connection_is_invalidated_and_replaced(postgresql_url, place):
    with contextlib.closing(State(postgresql_url)) as state:

        def fail(connection):
            backend = connection.connection.dbapi_connection.info.backend_pid
            state.database._snapshot_engine().connect().exec_driver_sql(
                f"SELECT pg_terminate_backend({backend})"
            )
            if place == "statement":
                records.execute(connection, select(hosts.c.host), {})
            elif place == "list":
                records.execute_for_each(connection, insert(hosts), [{"host": "b"}])

        with pytest.raises(DBAPIError) as raised:
            state.database._run_once(fail, "BEGIN")
        assert raised.value.connection_invalidated
        assert state.database.read(lambda connection: connection.scalar(select(literal(1)))) == 1


def test_a_statement_with_a_list_of_values_is_refused(database):
    listed = select(hosts).where(hosts.c.host.in_(["a", "b"]))
    with pytest.raises(TypeError, match="depends on the values"):
        database.read(lambda connection: records.execute(connection, listed, {}))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(TEXTS), st.sets(TEXTS, max_size=5))
def test_a_list_of_texts_has_its_texts(database, stored, wanted):
    chosen = select(runs.c.spider).where(is_in(runs.c.spider, "wanted"))
    rows = [{"spider": text, "started_at": 1.0, "versions": "", "settings": ""} for text in stored]

    def read(connection):
        connection.execute(delete(runs))
        if rows:
            records.execute_for_each(connection, insert(runs), rows)
        params = {"wanted": text_list(connection, wanted)}
        return {row[0] for row in records.execute(connection, chosen, params)}

    assert database.write(read) == stored & wanted


def test_a_transaction_within_another_has_its_own_connection(database):
    def inner(connection):
        return connection

    def outer(connection):
        return connection, database.read(inner)

    first, second = database.read(outer)
    assert first is not second
    assert database.read(inner) is second
    database.close()
    assert first.closed
    assert second.closed


def test_what_a_failed_transaction_wrote_is_gone(database):
    def fail(connection):
        records.execute(connection, insert(hosts), {"host": "a.example"})
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - the one above
        database.write(fail)
    assert database.all(select(hosts.c.host)) == []
