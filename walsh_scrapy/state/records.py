"""Records: rows of the state as objects, and how a row is written and found.

The tables of the classes here, of `policy.pacing.HostTimes` and of
`policy.robots.copy.RobotsCopy` have a column for each of their fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sqlalchemy import bindparam, select

from walsh_scrapy.policy.wording import storable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from sqlalchemy import Column, Connection, Select, Table
    from sqlalchemy.dialects.postgresql import Insert

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
    connection.execute(_upsert(connection.dialect.name, table, names), rows)


def insert_if_new(
    connection: Connection, table: Table, rows: RowValues | Sequence[RowValues]
) -> int:
    """Insert the rows whose primary key is new; return how many that were."""
    statement = _insert_if_new(connection.dialect.name, table)
    return connection.execute(
        statement, rows, execution_options={"preserve_rowcount": True}
    ).rowcount


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
