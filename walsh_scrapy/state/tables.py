"""The tables of the state. Times are epoch seconds, lengths seconds."""

from __future__ import annotations

from dataclasses import MISSING, fields
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
    event,
    false,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from walsh_scrapy.policy.freshness import CLOCK_SKEW, MAX_REVISIT_SECONDS
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

#: The version of the schema that this code reads and writes.
VERSION: Final = 5
#: Number of the PostgreSQL advisory lock under which tables are created.
LOCK_NUMBER: Final = 9309
metadata = MetaData()

#: The types of columns by those of the fields of records; a text, if it is none of these.
_TYPES: Final[Mapping[str, type[TypeEngine[Any]]]] = {
    "int": Integer,
    "float": Double,
    "bool": Boolean,
    "bytes": LargeBinary,
}
_URL: Final = String(4096)


def _columns(record: type[DataclassInstance], /, **types: TypeEngine[Any]) -> Iterator[Column[Any]]:
    """Yield a column for each field of a record; ``types`` are those of texts with a length.

    A field that may be None is a column that may be NULL. Others have the default of the field.
    """
    for each in fields(record):
        name, _, none = each.type.partition(" | ")
        given = each.default if not none and each.default is not MISSING else None
        default = false() if given is False else given if given is None else str(given)
        column_type = types.get(each.name) or _TYPES.get(name, Text)
        yield Column(each.name, column_type, nullable=bool(none), server_default=default)


# One row; `schema` explains its use.
schema_version = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

# The shared values of all crawls on this state: `pace_by`, the unit of a row of `hosts`; `file`,
# the file that the last crawl opened; the SHA-256 of each view's definition.
choices = Table(
    "choices",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", String(255), nullable=False),
)

# One row for each host, or for each registrable domain. No second index: a run writes its rows more
# often than a command reads all of them.
hosts = Table(
    "hosts",
    metadata,
    Column("host", String(255), primary_key=True),
    *_columns(HostTimes, owner=String(32), hold_by=String(16)),
)
workers = Table(
    "workers",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("run", BigInteger),
    Column("started_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("sources", Text, nullable=False, server_default=""),
)
# The operator's changes of hosts, with reasons: kept permanently (decision 31).
overrides = Table(
    "overrides",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("made_at", Double, nullable=False),
    Column("host", String(255), nullable=False),
    Column("override", String(16), nullable=False),
    Column("seconds", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Index("overrides_by_host", "host"),
)

robots = Table(
    "robots",
    metadata,
    Column("origin", String(512), primary_key=True),
    *_columns(RobotsCopy, validator_url=_URL),
    # The body by its name in `copies`.
    Column("copy", String(64)),
    Index("robots_by_copy", "copy"),
    Index("robots_by_time", "requested_at"),
)

blocklist = Table(
    "blocklist",
    metadata,
    Column("url", String(2048), primary_key=True),
    *_columns(BlocklistCopy, copy=String(64)),
)

# Each robots.txt and each blocklist that was in force, and the declaration of each run, once, by
# the SHA-256 of its bytes. It stays as long as a row of `requests` or `denials` may depend on it
# (decision 33); these have its `id`. A robots.txt names no site: many sites share a body, and facts
# about one come from its requests (decision 36).
copies = Table(
    "copies",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("first_used_at", Double, nullable=False),
    # When it was last known to be in force.
    Column("last_used_at", Double, nullable=False),
    Index("copies_by_time", "last_used_at"),
    # Else the number of a copy that was deleted by hand could become that of another one.
    sqlite_autoincrement=True,
)

# A source that was visited. Visits write its row, by its number.
sources = Table(
    "sources",
    metadata,
    # The number of its canonical URL, which all spellings share; `declared` has it too.
    Column("url_key", BigInteger, primary_key=True, autoincrement=False),
    *_columns(
        SourceRecord,
        **dict.fromkeys(("url", "moved_to", "onward_to", "validator_url"), _URL),
        **dict.fromkeys(("skip_hours", "skip_days"), String(80)),
        kind=String(16),
        outcome=String(32),
        body_sha256=String(64),
        format=String(40),
    ),
    UniqueConstraint("url"),
)

# One row for each sources file that was read, as it was then (decision 40).
files = Table(
    "files",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("path", String(4096), nullable=False, unique=True),
    # Empty while the sources of the file are being written.
    Column("sha256", String(64), nullable=False, server_default=""),
    # 0 if the file was so young that it may have changed without another time.
    Column("mtime_ns", BigInteger, nullable=False, server_default="0"),
    Column("size", BigInteger, nullable=False, server_default="0"),
    Column("pace_by", String(16), nullable=False, server_default=""),
    # JSON: the warnings of each run, and the longest delay of each host, in seconds.
    Column("warnings", Text, nullable=False, server_default="[]"),
    Column("delays", Text, nullable=False, server_default="{}"),
    # Its declaration: the name of a copy.
    Column("copy", String(64), nullable=False, server_default=""),
    # When a run last read it, noted once per day.
    Column("read_at", Double, nullable=False),
)

# Each source of each file, as the sync writes it; and the facts of its row in `sources` that decide
# when it is due, so that one index has the due sources (decision 40).
declared = Table(
    "declared",
    metadata,
    Column("url_key", BigInteger, primary_key=True, autoincrement=False),
    Column("file", Integer, primary_key=True),
    Column("url", String(4096), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("every", Double, nullable=False),
    Column("delay", Double),
    # JSON: its name, tags, page and folders; empty if it has none of them.
    Column("details", Text, nullable=False),
    # The unit of pacing of the URL that is requested: its host or domain.
    Column("host", String(255), nullable=False),
    # As in `sources`.
    Column("visited_at", Double),
    Column("not_before", Double, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("unconnected", Boolean, nullable=False, server_default=false()),
    Index(
        "declared_by_host",
        *("file", "kind", "host", "visited_at", "not_before", "failures", "unconnected"),
        *("every", "url_key"),
    ),
)

# The llms.txt of a host, requested once for all its sources that need it (R9).
indexes = Table(
    "indexes",
    metadata,
    *_columns(LlmsTxtRecord, url=_URL, validator_url=_URL),
    PrimaryKeyConstraint("url"),
)

#: Columns of `requests` and `denials` that have the number of a copy, because its name is long. No
#: foreign key, which would cost a look-up in all rows for each copy that is deleted.
COPIED = ("robots", "blocklist")
#: The value of `requests.source` for the URL of the request itself, as nearly everywhere.
ITS_URL = ""

#: The few requests for robots.txt and the blocklist, which have an index. It is text: with a
#: parameter in place of the word SQLite would not use the index.
FOR_RULES: Final = text("purpose <> 'target'")


def _evidence() -> tuple[Column[Any], ...]:
    """Return the columns for the evidence of a request."""
    return (
        Column("robots", BigInteger),
        Column("robots_at", Double),
        Column("blocklist", BigInteger),
        Column("blocklist_at", Double),
        # The status of the last answer to a request for the robots.txt in force (`robots_at`).
        Column("robots_status", Integer),
        Column("line", Integer),
        Column("rule", Text),
        # The URL whose answer redirected here.
        Column("redirected_from", Text),
    )


# Numbers come first: between texts each would cost PostgreSQL bytes to align it.
requests = Table(
    "requests",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    # When it was allowed to go out, by the clock that all processes on the state share.
    Column("requested_at", Double, nullable=False),
    # Its row is written with its begin, and completed at the end of the exchange. NULL until then,
    # and permanently if the process was killed: it may have been sent, and its end is not known.
    Column("duration", Double),
    # Seconds from then until it was sent, in which its connection was made.
    Column("connect_duration", Double, nullable=False, server_default="0"),
    # The machine's clock that is never set, in seconds, at the end of the exchange.
    Column("monotonic", Double, nullable=False, server_default="0"),
    # Seconds: the delay in force before it, and the hold that its answer began.
    Column("delay", Double, nullable=False),
    Column("hold", Double, nullable=False),
    # Seconds that its answer asked for; NULL without a Retry-After that could be read.
    Column("retry_after", Double),
    Column("run", BigInteger),
    *_evidence(),
    Column("status", Integer),
    # Whether it had validators, and whether its answer had one: an ETag or a Last-Modified.
    Column("conditional", Boolean, nullable=False, server_default=false()),
    Column("has_validator", Boolean, nullable=False, server_default=false()),
    Column("host", String(255), nullable=False),
    Column("url", Text, nullable=False),
    Column("gates", Text, nullable=False),
    # `target`, `robots` or `blocklist`.
    Column("purpose", String(16), nullable=False),
    # The declared source that a target was for; `ITS_URL`, or NULL for another request.
    Column("source", String(4096)),
    Column("error", Text, nullable=False, server_default=""),
    Index("requests_by_time", "requested_at"),
    # Without its time the host is there once for many rows of PostgreSQL.
    Index("requests_by_host", "host"),
)
_for_rules = Index(
    "requests_for_rules", requests.c.purpose, requests.c.host, requests.c.requested_at
)

# Requests that a gate denied: they were not sent.
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

# One row for each run; `ended` is empty while it goes on, and permanently if it was killed.
runs = Table(
    "runs",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("spider", String(255), nullable=False),
    # The command that requested a URL by hand; empty for a crawl (decision 39).
    Column("command", String(32), nullable=False, server_default=""),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    # Its end, as Scrapy names it: `finished`, `shutdown`, `state_failed`, ...
    Column("finish_reason", String(255), nullable=False, server_default=""),
    # JSON objects: versions and settings in force at its begin, and the summary of its end.
    Column("versions", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("summary", Text, nullable=False, server_default="{}"),
    # The first moment at which an answer, a connection or a refusal proved its network.
    Column("online_at", Double),
    Index("runs_by_time", "started_at"),
)


def _source() -> ForeignKey:
    """Return the key of a source: its URL, which follows another spelling of it."""
    return ForeignKey("sources.url", onupdate="CASCADE")


entries = Table(
    "entries",
    metadata,
    # The key of its page; another key if another entry of that page was there before (decision 19).
    Column("key", String(64), primary_key=True),
    # The key of its page if that is not in `key`.
    Column("page_key", String(64)),
    Column("own_key", String(64), nullable=False),
    Column("title_key", String(64)),
    # Its date of publication (RFC 3339), empty unless that tells it from others of its page.
    Column("evident_date", String(20), nullable=False, server_default=""),
    Column("source", String(4096), _source(), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("first_seen", Double, nullable=False),
    Column("item", Text, nullable=False),
    # Whether it was there when its source was read for the first time, so that it is not news.
    Column("backfill", Boolean, nullable=False, server_default=false()),
    # The run that found it. No foreign key, which would cost a look-up for each entry; `requests`
    # is alike.
    Column("run", BigInteger),
    Index("entries_by_time", "first_seen"),
    Index("entries_by_source", "source"),
)

# The other sources in which an entry was found: it is kept once (decision 19).
sightings = Table(
    "sightings",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("source", String(4096), _source(), primary_key=True),
    Index("sightings_by_source", "source"),
)

# The pages that a source has listed more than once in one document (decision 19).
repeated_pages = Table(
    "repeated_pages",
    metadata,
    Column("source", String(4096), _source(), primary_key=True),
    Column("page_key", String(64), primary_key=True),
)

# Few entries have a row in it. No two of one page have one title and one date, even if two
# processes insert them.
_by_page = Index(
    "entries_by_page",
    entries.c.page_key,
    entries.c.title_key,
    entries.c.evident_date,
    unique=True,
)


@event.listens_for(metadata, "before_create")
def _in_dialect(_metadata: MetaData, connection: Connection, **_options: object) -> None:
    """Set the options of the database's dialect. Earlier it would be imported for that."""
    dialect = connection.dialect.name
    for index, where in ((_for_rules, FOR_RULES), (_by_page, text("page_key IS NOT NULL"))):
        index.dialect_kwargs[f"{dialect}_where"] = where
    if dialect == "postgresql":  # an update finds space on its page
        hosts.dialect_kwargs["postgresql_with"] = {"fillfactor": 80}


#: The first second of the year 10000: a due time then or later (`NEVER`) has no readable time.
LAST_MOMENT: Final = 253_402_300_800


class Due(NamedTuple):
    """When a source is due, in SQL: 0 for at once, NEVER if it is gone; and why, in one word."""

    at: ColumnElement[float]
    rule: ColumnElement[str]  #: gone, new, clock, resumed, asked or operator

    @classmethod
    def of(
        cls,
        known: FromClause,
        every: ColumnElement[float],
        min_revisit: ColumnElement[float],
        now: ColumnElement[float],
    ) -> Self:
        """Return the one expression for `declared`, or `sources`, as of ``now`` (decision 20).

        It is the later of the time of server and feed, and of the operator's interval. Each failure
        in a row after the first doubles that, up to 30 days. A first failure before any connection
        counts for ``min_revisit`` only: it may be that of the network between. A visit in the
        future counts as none. Otherwise a clock that was wrong once could delay a source for years.
        """
        at, asked, failures = known.c.visited_at, known.c.not_before, known.c.failures
        at_once, latest = literal_column("0.0", Double), now + literal_column(str(CLOCK_SKEW))
        is_gone = asked >= literal_column(str(LAST_MOMENT))
        least = _Greatest(min_revisit, every)
        doubled = case((failures > 41, 40), (failures > 1, failures - 1), else_=0)
        grown = least * literal_column("1").cast(BigInteger).bitwise_lshift(doubled)
        by_operator = at + _Least(grown, _Greatest(least, literal_column(str(MAX_REVISIT_SECONDS))))
        rules: list[tuple[ColumnElement[bool], ColumnElement[float], str]] = [
            (is_gone, asked, "gone"),
            (at.is_(None), at_once, "new"),
            (at > latest, at_once, "clock"),
            (asked <= at_once, at_once, "resumed"),
            (known.c.unconnected & (failures <= 1), at + min_revisit, "operator"),
        ]
        moment = case(*(rule[:2] for rule in rules), else_=_Greatest(asked, by_operator))
        rules.append((asked > by_operator, asked, "asked"))
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
def _in_sqlite(element: _Greatest | _Least, compiler: SQLCompiler, **options: object) -> str:
    name = "max" if isinstance(element, _Greatest) else "min"
    return f"{name}{compiler.process(element.clause_expr, **options)}"


def has_schema(connection: Connection) -> bool:
    """Return True if the database has the tables of a state, of any version."""
    return connection.dialect.has_table(connection, schema_version.name)


def versions(connection: Connection) -> list[int]:
    """Return the rows of the version table: exactly one in a sound state."""
    return list(connection.scalars(select(schema_version.c.version)))


def create(connection: Connection) -> bool:
    """Create the tables, if there are none, and return True if there were none.

    The second of two processes that start at the same time waits for the lock of the transaction on
    SQLite, and for the one that is taken here on PostgreSQL.
    """
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK_NUMBER})")
    if has_schema(connection):
        return False
    metadata.create_all(connection)
    connection.execute(insert(schema_version), {"version": VERSION})
    return True
