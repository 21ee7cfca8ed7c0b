"""The log: requests that were sent and denied, with what decided (decision 33)."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    String,
    Table,
    Text,
    event,
    text,
)

from walsh_scrapy.state.tables.schema import metadata

# What many rows of the log repeat, once: what the gates answered, and the names of copies.
texts = Table(
    "texts",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    # The text; of a long one `#` and its SHA-256, and the text is in `text`.
    Column("name", String(65), nullable=False, unique=True),
    Column("text", Text),
    # A day at most before a row named it last.
    Column("used_at", Double, nullable=False),
    Index("texts_by_time", "used_at"),
)

#: Columns of `requests` and `denials` that are numbers in `texts`.
NUMBERED = ("gates", "robots", "blocklist")
#: What stands in `requests.source` for the URL of the request itself, as nearly everywhere.
ITS_URL = ""

#: The few requests for the blocklist, which have an index. It is text: with a parameter in place
#: of the word SQLite would not use the index.
FOR_LIST: Final = text("purpose = 'blocklist'")


def _evidence() -> tuple[Column[Any], ...]:
    """Return the columns that say what decided about a request."""
    return (
        Column("robots", BigInteger),
        Column("robots_at", Double),
        Column("blocklist", BigInteger),
        # The status of the last answer to a request for the robots.txt in force (`robots_at`).
        Column("robots_status", Integer),
        Column("line", Integer),
        Column("rule", Text),
        # The URL whose answer redirected here.
        Column("redirected_by", Text),
    )


# On PostgreSQL each day is a partition (`partitions`), and what belongs to none is in
# `requests_rest`. Numbers come first there: between texts each would cost bytes to align it.
requests = Table(
    "requests",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    # When its host was leased for it, by the clock that all processes on the state share.
    Column("sent_at", Double, nullable=False),
    # Its row is written with the lease, and completed at the end of the exchange. NULL until then,
    # and for good if the process was killed: it may have been sent, and its end is not known.
    Column("seconds", Double),
    # Seconds from the lease until it was sent, in which its connection was made.
    Column("waited", Double, nullable=False, server_default="0"),
    # The machine's own clock that is never set, in seconds, at the end of the exchange.
    Column("monotonic", Double, nullable=False, server_default="0"),
    # Seconds: the pause asked for before it, and the hold that its answer began.
    Column("pause", Double, nullable=False),
    Column("hold", Double, nullable=False),
    Column("run", BigInteger),
    Column("gates", BigInteger, nullable=False),
    *_evidence(),
    Column("status", Integer),
    Column("host", String(255), nullable=False),
    Column("url", Text, nullable=False),
    # `target`, `robots` or `blocklist`.
    Column("purpose", String(16), nullable=False),
    # The declared source that a target was for; `ITS_URL`, or NULL for another request.
    Column("source", String(4096)),
    Column("error", Text, nullable=False, server_default=""),
    # The header of its answer, a line each if it came several times; NULL if there was none.
    Column("retry_after", Text),
    Index("requests_by_time", "sent_at").ddl_if(dialect="sqlite"),
    Index("requests_by_host", "host", "sent_at").ddl_if(dialect="sqlite"),
    # Within a day its key has the time. A host alone is there once for many rows.
    Index("requests_of_host", "host").ddl_if(dialect="postgresql"),
)
_for_list = Index("requests_for_list", requests.c.host)
requests.primary_key.ddl_if(dialect="sqlite")


@event.listens_for(requests, "before_create")
def _in_dialect(_table: Table, connection: Connection, **_options: object) -> None:
    """Say what only the dialect of the database knows. Earlier it would be imported for that."""
    dialect = connection.dialect.name
    _for_list.dialect_kwargs[f"{dialect}_where"] = FOR_LIST
    if dialect == "postgresql":
        requests.dialect_kwargs["postgresql_partition_by"] = "RANGE (sent_at)"


for _made in (
    "ALTER TABLE requests ADD PRIMARY KEY (sent_at, id)",
    "CREATE TABLE requests_rest PARTITION OF requests DEFAULT",
):
    _of_days = DDL(_made)  # type: ignore[no-untyped-call]
    event.listen(requests, "after_create", _of_days.execute_if(dialect="postgresql"))

# Requests that a gate denied: they were not sent.
denials = Table(
    "denials",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Double, nullable=False),
    Column("host", String(255), nullable=False),
    Column("url", Text, nullable=False),
    Column("gate", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("run", BigInteger),
    *_evidence(),
    Index("denials_by_time", "at"),
    Index("denials_by_host", "host", "at"),
)
