"""The tables of the state. Times are epoch seconds, lengths seconds.

A column that a view shows is described in the docstring of the view.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    case,
    false,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from walsh_scrapy.policy.durations import CLOCK_SKEW, MAX_REVISIT_SECONDS
from walsh_scrapy.policy.pacing import HostTimes
from walsh_scrapy.policy.robots.copy import RobotsCopy
from walsh_scrapy.state.records import BlocklistCopy, LlmsTxtRecord, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    from _typeshed import DataclassInstance
    from sqlalchemy import ColumnElement, Connection, FromClause
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

#: The version of the schema that this code reads and writes; `upgrade` brings older ones to it.
VERSION: Final = 6
#: The oldest version of a schema that is upgraded.
FIRST_VERSION: Final = 5
#: Number of the PostgreSQL advisory lock under which tables are created.
LOCK_NUMBER: Final = 9309
metadata = MetaData()

#: The types of columns by the types of fields; any other field is a text.
_TYPES: Final[Mapping[str, type[TypeEngine[Any]]]] = {
    "int": Integer,
    "float": Double,
    "bool": Boolean,
    "bytes": LargeBinary,
}
_URL: Final = String(4096)


def _columns(record: type[DataclassInstance], /, **types: TypeEngine[Any]) -> Iterator[Column[Any]]:
    """Yield a column for each field of a record; ``types`` has the types of texts with a length.

    A column may be NULL if the field may be None. Otherwise it has the default of the field.
    """
    for field in fields(record):
        name, _, none = field.type.partition(" | ")
        value = field.default if not none and field.default is not MISSING else None
        default = false() if value is False else value if value is None else str(value)
        column_type = types.get(field.name) or _TYPES.get(name, Text)
        yield Column(field.name, column_type, nullable=bool(none), server_default=default)


#: One row: the version.
schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, primary_key=True),  #: the version of the schema
)

#: The row of `choices` with the id of the state, which tells the positions of two states apart.
STATE_ID: Final = "id"
#: The row of `choices` with the largest number that an entry ever got; its lock is that of numbers.
LAST_SEQ: Final = "last_seq"
#: Values that all crawls on this state share.
choices = Table(
    "choices",
    metadata,
    #: `pace_by` (WALSH_PACE_BY), `file` (the inode of the file that the last crawl opened),
    #: `quick_check` (the last check of an SQLite file), `id`, `last_seq`, or the name of a view
    Column("name", String(32), primary_key=True),
    #: the value; for a check its epoch second and `ok` or the damage, for `last_seq` the largest
    #: `seq` that was ever given, for a view the SHA-256 of the definition that made it
    Column("value", String(255), nullable=False),
)

#: The query for that id.
STATE_ID_SQL: Final = select(choices.c.value).where(choices.c.name == STATE_ID)

# There is no second index, because crawls write rows far more often than commands read all of them.
#: The pacing of each host or domain that was requested in the last 90 days.
hosts = Table(
    "hosts",
    metadata,
    Column("host", String(255), primary_key=True),
    *_columns(HostTimes, owner=String(32), hold_by=String(16)),
)
#: The crawls that own hosts, until they end, or a day after they expired.
workers = Table(
    "workers",
    metadata,
    Column("id", String(32), primary_key=True),  #: the `owner` in `hosts`
    Column("run", BigInteger),  #: the `id` in `runs`
    Column("started_at", Double, nullable=False),  #: its start
    #: when it expires, unless the crawl renews it, as it does every 5 s
    Column("expires_at", Double, nullable=False),
    Column("sources", Text, nullable=False, server_default=""),  #: the sources that it visits
)
#: What an operator changed with `walsh hosts`, `sources` or `forget`, kept permanently.
overrides = Table(
    "overrides",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("made_at", Double, nullable=False),
    Column("host", String(255), nullable=False),
    Column("override", String(16), nullable=False),
    Column("seconds", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("url", String(4096)),
    Column("requests", Integer),
    Index("overrides_by_host", "host"),
)

#: The last robots.txt of each scheme, host and port, for 90 days after the last request.
robots = Table(
    "robots",
    metadata,
    Column("origin", String(512), primary_key=True),
    *_columns(RobotsCopy, validator_url=_URL),
    Column("copy", String(64)),  #: the `sha256` of the body in `copies`
    Index("robots_by_copy", "copy"),
    Index("robots_by_time", "requested_at"),
)

#: The blocklist as last adopted, and its schema.
blocklist = Table(
    "blocklist",
    metadata,
    Column("url", String(2048), primary_key=True),
    *_columns(BlocklistCopy, copy=String(64)),
)

# A copy does not name a site: many sites have the same robots.txt, and what is said about a site
# comes from the requests to that site alone (decision 36).
#: Each robots.txt and blocklist that decided about a request, and the sources that each run
#: declared, as long as a request or denial may depend on them.
copies = Table(
    "copies",
    metadata,
    #: the number in the evidence of `requests` and `denials`
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("first_used_at", Double, nullable=False),
    Column("last_used_at", Double, nullable=False),
    Index("copies_by_time", "last_used_at"),
    # Without this, a copy could get the id of a copy that was deleted by hand.
    sqlite_autoincrement=True,
)

#: The sources that were ever visited, whatever the spelling of the URL.
sources = Table(
    "sources",
    metadata,
    #: a hash of the canonical URL, the same for all spellings
    Column("url_key", BigInteger, primary_key=True, autoincrement=False),
    *_columns(
        SourceRecord,
        url=_URL,
        moved_to=_URL,
        onward_to=_URL,
        validator_url=_URL,
        skip_hours=String(80),
        skip_days=String(80),
        kind=String(16),
        outcome=String(32),
        body_sha256=String(64),
        format=String(40),
    ),
    UniqueConstraint("url"),
)

#: The sources files that were read in the last 90 days.
files = Table(
    "files",
    metadata,
    Column("id", Integer, primary_key=True),  #: the number in `declared`
    Column("path", String(4096), nullable=False, unique=True),  #: the absolute path
    #: of the file as it was read; empty while its sources are being written
    Column("sha256", String(64), nullable=False, server_default=""),
    #: its modification time; 0 if it was younger than two seconds, and may have changed again
    Column("mtime_ns", BigInteger, nullable=False, server_default="0"),
    Column("size", BigInteger, nullable=False, server_default="0"),  #: in bytes
    #: the WALSH_PACE_BY of its hosts
    Column("pace_by", String(16), nullable=False, server_default=""),
    #: JSON: the warnings about its content
    Column("warnings", Text, nullable=False, server_default="[]"),
    #: JSON: the longest declared delay of each host, in seconds
    Column("delays", Text, nullable=False, server_default="{}"),
    #: the `sha256` of its declaration in `copies`
    Column("copy", String(64), nullable=False, server_default=""),
    Column("read_at", Double, nullable=False),  #: when a run read it last, written once per day
)

# The facts in `sources` that decide when a source is due are repeated here, so that one index finds
# the due sources.
#: Each source of each file. If it is deleted, the next run reads the files again.
declared = Table(
    "declared",
    metadata,
    Column("url_key", BigInteger, primary_key=True, autoincrement=False),  #: as in `sources`
    Column("file", Integer, primary_key=True),  #: the `id` in `files`
    # As declared; durations in seconds.
    Column("url", String(4096), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("every", Double, nullable=False),
    Column("delay", Double),
    #: JSON array: name, tags, page and folders; empty if all of these are missing
    Column("details", Text, nullable=False),
    #: the host of the URL that is requested, or its domain if domains are paced
    Column("host", String(255), nullable=False),
    # As in `sources`.
    Column("visited_at", Double),
    Column("not_before", Double, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("unconnected", Boolean, nullable=False, server_default=false()),
    #: when the file had it first
    Column("added_at", Double, nullable=False, server_default="0"),
    Index(
        "declared_by_host",
        *("file", "kind", "host", "visited_at", "not_before", "failures", "unconnected"),
        *("every", "url_key"),
    ),
)

#: The llms.txt of each host, requested once for all its sources.
indexes = Table(
    "indexes",
    metadata,
    *_columns(LlmsTxtRecord, url=_URL, validator_url=_URL),
    PrimaryKeyConstraint("url"),
)

#: Columns of `requests` and `denials` with the id of a copy, because a SHA-256 is long. They are no
#: foreign keys: for each deleted copy these would look through all rows.
COPIED = ("robots", "blocklist")
#: The value of `requests.source` if the source is the URL of the request, as nearly always.
ITS_URL = ""

#: The condition of the index on the few requests for robots.txt and the blocklist. It is written as
#: text, because SQLite would not use the index if 'target' were a parameter.
FOR_RULES: Final = text("purpose <> 'target'")


def _evidence() -> tuple[Column[Any], ...]:
    """Return the columns with the documents and rules that decided about a request."""
    return (
        Column("robots", BigInteger),
        Column("robots_at", Double),
        Column("blocklist", BigInteger),
        Column("blocklist_at", Double),
        Column("robots_status", Integer),
        Column("line", Integer),
        Column("rule", Text),
        Column("redirected_from", Text),
    )


# Numbers come first: between texts PostgreSQL would need extra bytes to align each of them.
#: The request log, for WALSH_LOG_DAYS. A row is written when the exchange begins, and completed
#: when it ends. If the crawl is killed in between, the request may have been sent.
requests = Table(
    "requests",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("requested_at", Double, nullable=False),
    Column("duration", Double),
    Column("connect_duration", Double, nullable=False, server_default="0"),
    Column("monotonic", Double, nullable=False, server_default="0"),
    Column("delay", Double, nullable=False),
    Column("hold", Double, nullable=False),
    Column("retry_after", Double),
    Column("run", BigInteger),
    *_evidence(),
    Column("status", Integer),
    Column("conditional", Boolean, nullable=False, server_default=false()),
    Column("has_validator", Boolean, nullable=False, server_default=false()),
    Column("host", String(255), nullable=False),
    Column("url", Text, nullable=False),
    Column("gates", Text, nullable=False),
    Column("purpose", String(16), nullable=False),
    # `ITS_URL` if the source is the URL of the request.
    Column("source", String(4096)),
    Column("error", Text, nullable=False, server_default=""),
    Index("requests_by_time", "requested_at"),
    # Without the time, PostgreSQL stores a host once for many rows.
    Index("requests_by_host", "host"),
)
_for_rules = Index(
    "requests_for_rules", requests.c.purpose, requests.c.host, requests.c.requested_at
)

#: The requests that a gate denied, for WALSH_LOG_DAYS.
denials = Table(
    "denials",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("denied_at", Double, nullable=False),
    Column("host", String(255), nullable=False),
    Column("url", Text, nullable=False),
    Column("gate", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("run", BigInteger),
    *_evidence(),
    Index("denials_by_time", "denied_at"),
    Index("denials_by_host", "host", "denied_at"),
)

#: Each run, kept permanently.
runs = Table(
    "runs",
    metadata,
    #: the `run` of other tables
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("spider", String(255), nullable=False),
    Column("command", String(32), nullable=False, server_default=""),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("finish_reason", String(255), nullable=False, server_default=""),
    Column("versions", Text, nullable=False),
    #: JSON: the settings, with `signing_key` (the id of the key), `declared` (the copy of the
    #: declared sources) and `force`
    Column("settings", Text, nullable=False),
    Column("summary", Text, nullable=False, server_default="{}"),
    #: when an answer, a connection or a refusal first proved that the network works
    Column("online_at", Double),
    Index("runs_by_time", "started_at"),
)


def _source() -> ForeignKey:
    """Return the foreign key of a source: its URL, which changes if its spelling changes."""
    return ForeignKey("sources.url", onupdate="CASCADE")


# Each key is a SHA-256, which docs/identity.md explains (decision 19).
#: Every entry, as it was first seen; its `url` and its keys are those that were listed last.
entries = Table(
    "entries",
    metadata,
    #: identifies the entry, whatever else changes
    Column("key", String(64), primary_key=True),
    Column("page_key", String(64)),  #: of its page, unless `key` is that
    Column("title_key", String(64)),  #: of its title; empty if that is missing
    #: the date of publication, if that tells the entry apart from other entries of its page
    Column("evident_date", String(20), nullable=False, server_default=""),
    Column("source", String(4096), _source(), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("first_seen", Double, nullable=False),
    Column("item", Text, nullable=False),  #: JSON: the exported fields
    Column("backfill", Boolean, nullable=False, server_default=false()),
    # No foreign key, here and in `requests`: it would cost a look-up for each row.
    Column("run", BigInteger),
    #: the place in the order in which readers get entries; NULL until it is numbered
    Column("seq", BigInteger),
    Column("id_key", String(64)),  #: of its id; NULL without one, and if it proves nothing
    #: the number of entries that had its page, title and date when it was stored; NULL if one of
    #: these has changed since
    Column("twin", Integer),
    Column("former_titles", Text),  #: JSON: the titles that it had before, the latest one first
    Column("changed_at", Double),  #: when its title changed last
    #: the place of that change in the order of `seq`; NULL until it is numbered, 0 if it was taken
    #: back
    Column("changed_seq", BigInteger),
    Column("changed_again", Double),  #: when that change gets another place
    Index("entries_by_time", "first_seen"),
    # Two processes cannot store an entry of a source twice.
    Index("entries_by_id", "source", "id_key", unique=True),
    # With the time, those that are not numbered yet come in the order in which they were seen.
    Index("entries_by_seq", "seq", "first_seen"),
)
_by_change = Index("entries_by_change", entries.c.changed_seq, entries.c.changed_at)
_by_change_again = Index("entries_by_change_again", entries.c.changed_again)

#: The readers of entries, each with its place in the order of numbers.
readers = Table(
    "readers",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    #: that of `walsh new --reader`; with " changed" after it for the reader of changes
    Column("name", String(80), nullable=False, unique=True),
    Column("seq", BigInteger, nullable=False),  #: the last one that it has got
    Column("read_at", Double, nullable=False),  #: when it got it
)

#: The problems that `walsh status --since-last NAME` has reported, and that go on.
reports = Table(
    "reports",
    metadata,
    Column("name", String(64), primary_key=True),
    #: JSON: the time of the last report, and its problems
    Column("problems", Text, nullable=False),
)

#: Other sources that had an entry too, with the keys of the entry as they listed it last.
sightings = Table(
    "sightings",
    metadata,
    Column("key", String(64), primary_key=True),  #: of the entry
    Column("source", String(4096), _source(), primary_key=True),  #: the URL of the other source
    # As in `entries`.
    Column("page_key", String(64)),
    Column("id_key", String(64)),
    Column("title_key", String(64)),
    Column("evident_date", String(20), nullable=False, server_default=""),
    Index("sightings_by_id", "source", "id_key"),
    Index("sightings_by_page", "source", "page_key"),
)

#: The ids and pages under which a source listed several entries in one document.
ambiguous_keys = Table(
    "ambiguous_keys",
    metadata,
    Column("source", String(4096), _source(), primary_key=True),  #: the URL of the source
    Column("key", String(64), primary_key=True),  #: of the id, or of the page
)

# Two processes that store an entry of two sources at once: the second one compares it again. Few
# entries are in this index: those that are not the first of their page, and those that changed.
_by_page = Index(
    "entries_by_page",
    *(entries.c.page_key, entries.c.title_key, entries.c.evident_date, entries.c.twin),
    unique=True,
)


def set_dialect_options(connection: Connection) -> None:
    """Set the options of tables and indexes for one dialect, before any of them is created.

    The database needs that dialect anyway then.
    """
    dialect = connection.dialect.name
    for index, where in (
        (_for_rules, FOR_RULES),
        (_by_page, text("page_key IS NOT NULL")),
        (_by_change, text("changed_at IS NOT NULL")),
        (_by_change_again, text("changed_again IS NOT NULL")),
    ):
        index.dialect_kwargs[f"{dialect}_where"] = where
    if dialect == "postgresql":  # leave space, so that an UPDATE stays on its page
        hosts.dialect_kwargs["postgresql_with"] = {"fillfactor": 80}


#: The first second of the year 10000. Later times, such as `NEVER`, cannot be shown as RFC 3339.
LAST_MOMENT: Final = 253_402_300_800


class Due(NamedTuple):
    """When a source is due, and why, as two SQL expressions.

    The time is 0 for a source that is due at once, and `NEVER` for one that is gone (410).
    """

    at: ColumnElement[float]
    rule: ColumnElement[str]  #: gone, new, clock, resumed, asked or operator

    @classmethod
    def from_columns(
        cls,
        table: FromClause,
        every: ColumnElement[float],
        min_revisit: ColumnElement[float],
        now: ColumnElement[float],
    ) -> Self:
        """Return the expressions for `declared`, `sources` or a query with their columns.

        A source is due when both the time that server and feed ask for and the operator's interval
        are over. Each failure in a row after the first one doubles that interval, up to 30 days. A
        first failure without any connection may be due to our network, so the source is due again
        after ``min_revisit``. A visit in the future is ignored: otherwise a clock that was wrong
        once could delay a source for years.
        """
        visited_at = table.c.visited_at
        not_before = table.c.not_before
        failures = table.c.failures
        at_once = literal_column("0.0", Double)
        latest = now + literal_column(str(CLOCK_SKEW))
        is_gone = not_before >= literal_column(str(LAST_MOMENT))
        interval = _Greatest(min_revisit, every)
        doublings = case((failures > 41, 40), (failures > 1, failures - 1), else_=0)
        grown = interval * literal_column("1").cast(BigInteger).bitwise_lshift(doublings)
        max_interval = _Greatest(interval, literal_column(str(MAX_REVISIT_SECONDS)))
        by_operator = visited_at + _Least(grown, max_interval)
        rules: list[tuple[ColumnElement[bool], ColumnElement[float], str]] = [
            (is_gone, not_before, "gone"),
            (visited_at.is_(None), at_once, "new"),
            (visited_at > latest, at_once, "clock"),
            (not_before <= at_once, at_once, "resumed"),
            (table.c.unconnected & (failures <= 1), visited_at + min_revisit, "operator"),
        ]
        moment = case(*(rule[:2] for rule in rules), else_=_Greatest(not_before, by_operator))
        rules.append((not_before > by_operator, not_before, "asked"))
        words: list[tuple[ColumnElement[bool], ColumnElement[str]]] = [
            (condition, literal_column(f"'{rule}'")) for condition, _, rule in rules
        ]
        return cls(moment, case(*words, else_=literal_column("'operator'")))


class _Greatest(GenericFunction[float]):
    """The larger of two numbers."""

    name = "greatest"
    type = Double()
    inherit_cache = True


class _Least(GenericFunction[float]):
    """The smaller of two numbers."""

    name = "least"
    type = Double()
    inherit_cache = True


@compiles(_Greatest, "sqlite")
@compiles(_Least, "sqlite")
def _compile_for_sqlite(
    element: _Greatest | _Least, compiler: SQLCompiler, **options: object
) -> str:
    name = "max" if isinstance(element, _Greatest) else "min"
    return f"{name}{compiler.process(element.clause_expr, **options)}"


def has_schema(connection: Connection) -> bool:
    """Return True if the database has the tables of a state, of any version."""
    return connection.dialect.has_table(connection, schema_version.name)


def versions(connection: Connection) -> list[int]:
    """Return the rows of the version table: one in a sound state."""
    return list(connection.scalars(select(schema_version.c.version)))


def last_writer(connection: Connection) -> str | None:
    """Return the package and version of the latest run, in a state of any schema; None if unknown.

    A newer schema may have other tables.
    """
    versions_of_run = text("SELECT versions FROM runs ORDER BY id DESC LIMIT 1")
    try:
        written = json.loads(connection.scalar(versions_of_run) or "")
        return f"walsh-scrapy {written['walsh-scrapy']}"
    except (DBAPIError, ValueError, TypeError, KeyError):
        return None


def lock_schema(connection: Connection) -> None:
    """Let no other process create or change tables until the transaction ends.

    On SQLite the transaction itself has that lock.
    """
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK_NUMBER})")


def create(connection: Connection) -> bool:
    """Create the tables unless they exist; return True if they did not exist.

    Of two processes that start at the same time, the second one waits.
    """
    lock_schema(connection)
    if has_schema(connection):
        return False
    set_dialect_options(connection)
    metadata.create_all(connection, checkfirst=False)
    connection.execute(insert(schema_version), {"version": VERSION})
    connection.execute(insert(choices), first_choices())
    return True


def new_state_id() -> str:
    """Return an id that no other state has."""
    return token_hex(8)


def first_choices() -> list[dict[str, str]]:
    """Return the rows of `choices` that each state has: a new id, and the number of no entry."""
    return [{"name": STATE_ID, "value": new_state_id()}, {"name": LAST_SEQ, "value": "0"}]
