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


# One row: the version of the schema that the tables have.
schema_version = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

# Values that all crawls on this state share: `pace_by`, whether rows of `hosts` are hosts or
# domains; `file`, the file that the last crawl opened; the SHA-256 of each view's definition.
choices = Table(
    "choices",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", String(255), nullable=False),
)

# One row for each host, or for each registrable domain; see `ownership`. There is no second index,
# because crawls write rows far more often than commands read all of them.
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
# What the operator changed about hosts, with reasons: kept permanently.
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
    # The SHA-256 of the body, which is in `copies`.
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

# The bytes of each robots.txt and each blocklist that decided about a request, and of the
# declaration of each run. A document is kept once, and as long as a row of `requests` or `denials`
# may have its `id`. It does not name a site: many sites have the same robots.txt, and what is said
# about a site comes from the requests to that site alone (decision 36).
copies = Table(
    "copies",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("first_used_at", Double, nullable=False),
    # When it was last known to be needed.
    Column("last_used_at", Double, nullable=False),
    Index("copies_by_time", "last_used_at"),
    # Without this, a copy could get the id of a copy that was deleted by hand.
    sqlite_autoincrement=True,
)

# A source that was visited. Visits write its row.
sources = Table(
    "sources",
    metadata,
    # A hash of its canonical URL, the same for all spellings; `declared` has it too.
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

# One row for each sources file, as it was when it was read.
files = Table(
    "files",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("path", String(4096), nullable=False, unique=True),
    # Empty while the sources of the file are being written.
    Column("sha256", String(64), nullable=False, server_default=""),
    # 0 if the file had just been written: it may have changed again without another time.
    Column("mtime_ns", BigInteger, nullable=False, server_default="0"),
    Column("size", BigInteger, nullable=False, server_default="0"),
    Column("pace_by", String(16), nullable=False, server_default=""),
    # JSON: its warnings, which each run repeats, and the longest delay of each host in seconds.
    Column("warnings", Text, nullable=False, server_default="[]"),
    Column("delays", Text, nullable=False, server_default="{}"),
    # The copy of its declaration, by SHA-256.
    Column("copy", String(64), nullable=False, server_default=""),
    # When a run read it last, written once per day.
    Column("read_at", Double, nullable=False),
)

# Each source of each file, as the sync writes it. The facts in `sources` that decide when a source
# is due are repeated here, so that one index finds the due sources.
declared = Table(
    "declared",
    metadata,
    Column("url_key", BigInteger, primary_key=True, autoincrement=False),
    Column("file", Integer, primary_key=True),
    Column("url", String(4096), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("every", Double, nullable=False),
    Column("delay", Double),
    # JSON array: its name, tags, page and folders; empty if all of these are missing.
    Column("details", Text, nullable=False),
    # The host of the URL that is requested, or its domain if domains are paced.
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

# The llms.txt of a host, requested once for all sources that need it.
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
        # The status of the answer to the request for robots.txt at `robots_at`.
        Column("robots_status", Integer),
        Column("line", Integer),
        Column("rule", Text),
        # The URL that redirected here.
        Column("redirected_from", Text),
    )


# Numbers come first: between texts PostgreSQL would need extra bytes to align each of them.
requests = Table(
    "requests",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    # When its exchange began, by the clock that all processes on the state share.
    Column("requested_at", Double, nullable=False),
    # A row is written when the exchange begins, and completed when it ends. NULL until then, and
    # forever if the process was killed: the request may have been sent, and its end is unknown.
    Column("duration", Double),
    # Seconds from `requested_at` until it was sent, in which its connection was made.
    Column("connect_duration", Double, nullable=False, server_default="0"),
    # Seconds of the machine's monotonic clock at the end of the exchange.
    Column("monotonic", Double, nullable=False, server_default="0"),
    # Seconds: the delay that was required before it, and the hold that its answer began.
    Column("delay", Double, nullable=False),
    Column("hold", Double, nullable=False),
    # Seconds that its answer asked for; NULL without a valid Retry-After.
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
    # The declared source that a target was for, or `ITS_URL`; NULL for any other request.
    Column("source", String(4096)),
    Column("error", Text, nullable=False, server_default=""),
    Index("requests_by_time", "requested_at"),
    # Without the time, PostgreSQL stores a host once for many rows.
    Index("requests_by_host", "host"),
)
_for_rules = Index(
    "requests_for_rules", requests.c.purpose, requests.c.host, requests.c.requested_at
)

# Requests that a gate denied, so that they were not sent.
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

# One row for each run; `ended_at` is NULL while it goes on, and forever if it was killed.
runs = Table(
    "runs",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("spider", String(255), nullable=False),
    # The command that fetched a URL by hand; empty for a crawl.
    Column("command", String(32), nullable=False, server_default=""),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    # Why it ended, as Scrapy names the reason: `finished`, `shutdown`, `state_failed`, ...
    Column("finish_reason", String(255), nullable=False, server_default=""),
    # JSON objects: versions and settings at its start, and the summary at its end.
    Column("versions", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("summary", Text, nullable=False, server_default="{}"),
    # When an answer, a connection or a refusal first proved that the network works.
    Column("online_at", Double),
    Index("runs_by_time", "started_at"),
)


def _source() -> ForeignKey:
    """Return the foreign key of a source: its URL, which changes if its spelling changes."""
    return ForeignKey("sources.url", onupdate="CASCADE")


entries = Table(
    "entries",
    metadata,
    # The key of its page for the first entry of a page, else a key of its own (decision 19).
    Column("key", String(64), primary_key=True),
    # The key of its page, unless that is in `key`.
    Column("page_key", String(64)),
    Column("own_key", String(64), nullable=False),
    Column("title_key", String(64)),
    # Its date of publication (RFC 3339), if that tells it apart from other entries of its page.
    Column("evident_date", String(20), nullable=False, server_default=""),
    Column("source", String(4096), _source(), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("first_seen", Double, nullable=False),
    Column("item", Text, nullable=False),
    # Whether it was there when its source was read for the first time, so that it is no news.
    Column("backfill", Boolean, nullable=False, server_default=false()),
    # The run that stored it. No foreign key, here and in `requests`: it would cost a look-up for
    # each row.
    Column("run", BigInteger),
    Index("entries_by_time", "first_seen"),
    Index("entries_by_source", "source"),
)

# Other sources that had an entry too. The entry itself is stored once.
sightings = Table(
    "sightings",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("source", String(4096), _source(), primary_key=True),
    Index("sightings_by_source", "source"),
)

# Pages that a source has listed more than once in one document.
repeated_pages = Table(
    "repeated_pages",
    metadata,
    Column("source", String(4096), _source(), primary_key=True),
    Column("page_key", String(64), primary_key=True),
)

# Two entries of one page cannot have the same title and date, even if two processes insert them.
# Few entries are in this index: those that are not the first of their page.
_by_page = Index(
    "entries_by_page", entries.c.page_key, entries.c.title_key, entries.c.evident_date, unique=True
)


@event.listens_for(metadata, "before_create")
def _set_dialect_options(_metadata: MetaData, connection: Connection, **_options: object) -> None:
    """Set options of one dialect, now that the database needs that dialect anyway."""
    dialect = connection.dialect.name
    for index, where in ((_for_rules, FOR_RULES), (_by_page, text("page_key IS NOT NULL"))):
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


def create(connection: Connection) -> bool:
    """Create the tables unless they exist; return True if they did not exist.

    Of two processes that start at the same time, the second one waits: on SQLite for the lock of
    the transaction, on PostgreSQL for the lock that is taken here.
    """
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK_NUMBER})")
    if has_schema(connection):
        return False
    metadata.create_all(connection)
    connection.execute(insert(schema_version), {"version": VERSION})
    return True
