"""Records: rows of the state as objects, and the statements that find and write rows.

The tables of the classes here, of `policy.pacing.HostTimes` and of
`policy.robots.copy.RobotsCopy` have a column for each of their fields.

The statements of each visit are run by the driver itself, with the SQL that SQLAlchemy compiled
once: to look up, bind and wrap a statement anew each time takes longer than the database does.
Connections, transactions and the kinds of errors stay SQLAlchemy's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sqlalchemy import BinaryExpression, Boolean, bindparam, select
from sqlalchemy.exc import DBAPIError, NoResultFound
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators

from walsh_scrapy.policy.wording import storable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _typeshed import DataclassInstance
    from sqlalchemy import Column, ColumnElement, Connection, Dialect, Select, Table
    from sqlalchemy.dialects.postgresql import Insert
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.sql.dml import UpdateBase
    from sqlalchemy.sql.selectable import SelectBase

    Statement = SelectBase | UpdateBase
    Params = Mapping[str, Any]
    Row = Sequence[Any]
    #: Conversions of values, by their places in a row.
    Processors = tuple[tuple[int, Callable[[Any], Any]], ...]

#: The outcome of a visit that its site refused with 429 or 503.
REFUSED: Final = "refused"
#: The outcomes of visits that are deferred because no robots.txt came, or a delay is too long.
NO_ROBOTS: Final = "robots.txt unavailable"
TOO_SLOW: Final = "delay too long"
#: The outcome of a visit that found the feed of another site in the place of the feed.
REPLACED: Final = "replaced"
#: Unchanged documents in a row after which the operator is told that the server ignores validators.
MAX_RESENT: Final = 3
#: The values of a row by the names of its columns.
RowValues: TypeAlias = Mapping[str, Any]
_Record = TypeVar("_Record", bound="DataclassInstance")
_Item = TypeVar("_Item")
#: Parameters of one statement. SQLite accepts 32,766.
_MAX_PARAMETERS: Final = 10_000


#: The columns of the move of a source that has not moved.
_NO_MOVE: Final[Mapping[str, Any]] = {
    "moved_to": None,
    "moved_since": None,
    "move_settled": False,
    "move_failing_since": None,
    "onward_to": None,
    "onward_since": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """One visited source: a row of the table ``sources``. Times are epoch seconds."""

    url: str
    kind: str
    first_visited_at: float | None = None  #: the end of its first visit
    visited_at: float | None = None  #: the end of its last visit
    #: no visit before this time, as server and feed ask; NEVER after a 410, 0 if it was resumed
    not_before: float = 0.0
    outcome: str = "new"
    detail: str = ""
    failures: int = 0  #: failed visits in a row
    unconnected: bool = False  #: whether the last visit failed before any connection
    failing_since: float | None = None  #: the first of these failures
    status: int | None = None  #: of the last response
    refused_since: float | None = None  #: the first of the refused or deferred visits in a row
    server_interval: float = 0.0  #: seconds between visits, as the server asks
    feed_interval: float = 0.0  #: seconds between visits, as the feed asks
    skip_hours: str = ""  #: numbers separated by commas, UTC
    skip_days: str = ""  #: English names separated by commas, UTC
    moved_to: str | None = None
    moved_since: float | None = None
    move_settled: bool = False  #: whether it is requested at ``moved_to`` from now on
    move_failing_since: float | None = None
    onward_to: str | None = None  #: where permanent redirects lead from ``moved_to``
    onward_since: float | None = None
    validator_url: str | None = None  #: the one URL that the validators may be sent to
    etag: bytes | None = None
    last_modified: bytes | None = None
    body_sha256: str | None = None  #: of the last document, if it was complete
    resent: int = 0  #: times in a row that the same document came although validators were sent
    #: The format of its last document: "rss20", "markdown"; "shared" if only another source read
    #: it, "" if nobody did.
    format: str = ""
    # A visit that was going on when the operator resumed it must not restore the old state.
    resumed: int = 0  #: times that the operator resumed it
    repeated: int = 0  #: entries that its last document listed once more
    read_at: float | None = None  #: the last time that its document was read, or was unchanged
    deferred_until: float | None = None  #: until when its last visit was deferred
    feed_title: str | None = None  #: the title of its feed, as it was read last
    feed_host: str | None = None  #: the host of the page that its feed links to

    @property
    def is_refused(self) -> bool:
        """Whether its site answered the last visit with 429 or 503, or does not take one yet."""
        return self.outcome == REFUSED

    @property
    def address(self) -> str:
        """The URL at which the source is requested: as declared, or where its move settled."""
        return self.moved_to if self.moved_to and self.move_settled else self.url

    def with_url(self, url: str) -> SourceRecord:
        """Return the record of the same source, declared under another spelling of its URL.

        If the source had moved to this spelling, that is settled: it is declared there now.
        """
        record = self if url == self.url else replace(self, url=url)
        return replace(record, **_NO_MOVE) if record.moved_to == url else record


@dataclass(frozen=True, slots=True)
class BlocklistCopy:
    """The blocklist or its schema, with the validators of the response it came in (R7).

    Validators are the header's bytes as the server sent them.
    """

    copy: str  #: the `sha256` of the document in `copies`
    etag: bytes | None  #: its validators, if the URL itself answered
    last_modified: bytes | None  #: its validators, if the URL itself answered
    requested_at: float  #: epoch seconds of the last request to the server
    #: the list as text, empty for the schema: JSON with the refresh in seconds and the corrections,
    #: then a line for each domain, with its day and reason after tabs
    adopted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmsTxtRecord:
    """One llms.txt: a row of the table ``indexes``. Times are epoch seconds."""

    url: str  #: its address
    requested_at: float = 0.0  #: the last request for it
    due_at: float = 0.0  #: the next request for it
    problem: str = ""  #: why it could not be used, as a sentence; empty if it was read
    validator_url: str | None = None  #: the one URL that its validators are sent to
    etag: bytes | None = None  #: its validators
    last_modified: bytes | None = None  #: its validators


# ---- as rows ----


def row_of(record: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a record, which hold plain values, by name.

    Many texts come from web servers, and may have characters that a database refuses: these are
    replaced.
    """
    row = {name: getattr(record, name) for name in _names(type(record))}
    for name, value in row.items():
        if isinstance(value, str):
            row[name] = storable(value)
    return row


def record_of(kind: type[_Record], row: Sequence[Any]) -> _Record:
    """Return the record of a row whose columns are the fields of the class, in their order."""
    return kind(**dict(zip(_names(kind), row, strict=True)))


def columns_of(kind: type[DataclassInstance], table: Table) -> tuple[Column[Any], ...]:
    """Return the columns of a table that are the fields of a class, in their order."""
    return tuple(table.c[name] for name in _names(kind))


@cache
def by_key(kind: type[DataclassInstance], table: Table) -> Select[Any]:
    """Return the query for one record of a class, by the parameter ``key``: its primary key."""
    (key,) = table.primary_key
    return select(*columns_of(kind, table)).where(key == bindparam("key"))


@cache
def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def upsert(
    connection: Connection,
    table: Table,
    rows: RowValues | Sequence[RowValues],
    *,
    kept: tuple[str, ...] = (),
) -> None:
    """Insert a row or several; if the primary key exists, replace the columns that are not kept."""
    row = rows if isinstance(rows, Mapping) else rows[0]
    names = tuple(name for name in row if name not in kept)
    statement = _upsert(connection.dialect.name, table, names)
    if isinstance(rows, Mapping):
        execute(connection, statement, rows)
    else:
        execute_for_each(connection, statement, rows)


def insert_if_new(
    connection: Connection, table: Table, rows: RowValues | Sequence[RowValues]
) -> int:
    """Insert the rows whose primary key is new; return how many that were."""
    statement = _insert_if_new(connection.dialect.name, table)
    if isinstance(rows, Mapping):
        return execute(connection, statement, rows).rowcount
    return execute_for_each(connection, statement, rows).rowcount


def in_batches(items: Collection[_Item], max_items: int = _MAX_PARAMETERS) -> Iterator[list[_Item]]:
    """Yield ten thousand items at a time: both databases limit the parameters of a statement."""
    remaining = iter(items)
    while batch := list(islice(remaining, max_items)):
        yield batch


@cache
def _upsert(dialect: str, table: Table, names: tuple[str, ...]) -> Insert:
    statement = insert_into(dialect, table)
    keys = [column.name for column in table.primary_key]
    changes = {name: statement.excluded[name] for name in names if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changes)


@cache
def _insert_if_new(dialect: str, table: Table) -> Insert:
    return insert_into(dialect, table).on_conflict_do_nothing()


def insert_into(dialect: str, table: Table) -> Insert:
    """Return an INSERT of a dialect, which has ON CONFLICT."""
    # Only the dialect in use is imported: PostgreSQL's takes as long as some commands do.
    inserts = import_module(f"sqlalchemy.dialects.{dialect}")
    return inserts.insert(table)  # type: ignore[no-any-return]


# ---- statements that the driver runs itself ----


class is_in(BinaryExpression[bool]):  # noqa: N801 - as a function
    """The condition that a column is in the list of texts of a parameter; see `text_list`."""

    inherit_cache = False  # it is compiled once

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        super().__init__(column, bindparam(name), operators.eq, type_=Boolean())


@compiles(is_in, "sqlite")
def _is_in_json(element: is_in, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401
    column, texts = (compiler.process(part, **options) for part in (element.left, element.right))
    return f"{column} IN (SELECT CAST(value AS TEXT) FROM json_each({texts}))"  # noqa: S608 - a parameter


@compiles(is_in, "postgresql")
def _is_in_array(element: is_in, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401
    column, texts = (compiler.process(part, **options) for part in (element.left, element.right))
    return f"{column} = ANY({texts})"


def text_list(connection: Connection, texts: Iterable[str]) -> str | list[str]:
    """Return a list of texts as a parameter for `is_in`."""
    values = sorted(texts)  # the same for each run, for those who read a log of statements
    return json.dumps(values) if connection.dialect.name == "sqlite" else values


class Rows:
    """The rows of a statement, all of them in memory, as tuples or lists."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Sequence[Row], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount  #: the number of changed rows, as the driver has it

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def all(self) -> Sequence[Row]:
        """Return all rows."""
        return self._rows

    def first(self) -> Row | None:
        """Return the first row, or None."""
        return self._rows[0] if self._rows else None

    def one(self) -> Row:
        """Return the first row. Raises NoResultFound."""
        if not self._rows:
            raise NoResultFound("the statement returned no row")
        return self._rows[0]

    def scalar(self) -> Any:  # noqa: ANN401 - a column of any type
        """Return the first column of the first row, or None without a row."""
        return self._rows[0][0] if self._rows else None


class _Prepared:
    """A statement for one dialect and one set of parameters."""

    def __init__(self, statement: Statement, dialect: Dialect, names: Sequence[str]) -> None:
        compiled: Any = statement.compile(dialect=dialect, column_keys=list(names))
        if compiled.post_compile_params or compiled.literal_execute_params:
            raise TypeError(f"its SQL depends on the values of its parameters: {compiled}")
        self._dialect = dialect
        self._sql: str = compiled.string
        binds = compiled.bind_names
        keys = {name: bind.key for bind, name in binds.items()}
        types = {name: bind.type for bind, name in binds.items()}
        self._names = tuple(compiled.positiontup if compiled.positional else keys)
        self._keys = tuple(keys[name] for name in self._names)
        self._is_positional: bool = compiled.positional
        self._constants = {
            bind.key: bind.effective_value for bind in binds if bind.key not in names
        }
        self._processors = _present(
            types[name].dialect_impl(dialect).bind_processor(dialect) for name in self._names
        )
        self._columns = [column.type for column in statement.exported_columns]
        self._results: Processors | None = None  # until there are rows

    def run(self, connection: Connection, params: Params) -> Rows:
        """Run the statement once."""
        arguments = self._arguments(params)
        cursor = run_by_driver(connection, self._sql, arguments)
        try:
            # What a driver says of columns would be made anew each time.
            rows = cursor.fetchall() if self._columns else ()
        except connection.dialect.loaded_dbapi.Error as error:  # a text that is none
            raise _as_dbapi_error(connection, error, self._sql, arguments) from error
        if rows:
            rows = self._convert(rows, cursor)
        return Rows(rows, cursor.rowcount)

    def run_for_each(self, connection: Connection, rows: Sequence[Params]) -> Rows:
        """Run the statement once for each row of parameters."""
        arguments = [self._arguments(row) for row in rows]
        driver: Any = connection.connection.dbapi_connection
        cursor = driver.cursor()
        try:
            cursor.executemany(self._sql, arguments)
        except connection.dialect.loaded_dbapi.Error as error:
            raise _as_dbapi_error(connection, error, self._sql, arguments) from error
        return Rows((), cursor.rowcount)

    def _arguments(self, params: Params) -> Any:  # noqa: ANN401 - as the driver wants
        values = {**self._constants, **params} if self._constants else params
        row = [values[key] for key in self._keys]
        for place, process in self._processors:
            row[place] = process(row[place])
        return row if self._is_positional else dict(zip(self._names, row, strict=True))

    def _convert(self, rows: Sequence[Row], cursor: Any) -> Sequence[Row]:  # noqa: ANN401 - DB-API
        if self._results is None:
            self._results = _present(
                kind.dialect_impl(self._dialect).result_processor(self._dialect, column[1])
                for kind, column in zip(self._columns, cursor.description, strict=True)
            )
        if not self._results:
            return rows
        converted = [list(row) for row in rows]
        for row in converted:
            for place, process in self._results:
                row[place] = process(row[place])
        return converted


def _present(processors: Iterable[Callable[[Any], Any] | None]) -> Processors:
    """Return the processors that there are, with their places."""
    return tuple(
        (place, process) for place, process in enumerate(processors) if process is not None
    )


_PREPARED: Final[dict[tuple[Statement, str, tuple[str, ...]], _Prepared]] = {}


def execute(connection: Connection, statement: Statement, params: Params) -> Rows:
    """Run a statement that is made once. Raises DBAPIError.

    A statement with a list of values cannot be prepared.
    """
    return _prepare(connection, statement, params).run(connection, params)


def execute_for_each(connection: Connection, statement: Statement, rows: Sequence[Params]) -> Rows:
    """Run a statement that is made once, for each row of parameters. Raises DBAPIError."""
    return _prepare(connection, statement, rows[0]).run_for_each(connection, rows)


def _prepare(connection: Connection, statement: Statement, params: Params) -> _Prepared:
    key = (statement, connection.dialect.name, tuple(params))
    prepared = _PREPARED.get(key)
    if prepared is None:
        prepared = _PREPARED[key] = _Prepared(statement, connection.dialect, key[2])
    return prepared


def run_by_driver(connection: Connection, sql: str, arguments: Any = None) -> Any:  # noqa: ANN401
    """Run SQL by the driver of a connection, and return its cursor. Raises DBAPIError."""
    driver: Any = connection.connection.dbapi_connection
    try:
        return driver.execute(sql) if arguments is None else driver.execute(sql, arguments)
    except connection.dialect.loaded_dbapi.Error as error:
        raise _as_dbapi_error(connection, error, sql, arguments) from error


def commit(connection: Connection) -> None:
    """Commit the transaction of a connection. Raises DBAPIError."""
    if connection.in_transaction():  # as SQLAlchemy sees it: it ran a statement itself
        connection.commit()
        return
    driver: Any = connection.connection.dbapi_connection
    try:
        driver.commit()
    except connection.dialect.loaded_dbapi.Error as error:
        raise _as_dbapi_error(connection, error, "COMMIT") from error


def _as_dbapi_error(
    connection: Connection,
    error: Any,  # noqa: ANN401 - one of its errors
    sql: str,
    arguments: Any = None,  # noqa: ANN401 - as the driver wants
) -> BaseException:
    """Return an error of the driver as SQLAlchemy raises it; a lost connection is invalidated."""
    dialect = connection.dialect
    is_lost = dialect.is_disconnect(error, connection.connection.dbapi_connection, None)
    if is_lost:
        connection.invalidate(error)
    wrapped: BaseException = DBAPIError.instance(
        sql,
        arguments,
        error,
        dialect.loaded_dbapi.Error,
        connection_invalidated=is_lost,
        dialect=dialect,
    )
    return wrapped
