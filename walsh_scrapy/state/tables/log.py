"""The log: requests that were sent and denied, with what decided (decision 33)."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
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

from walsh_scrapy.state.tables.hosts import metadata

#: Columns of `requests` and `denials` that have the number of a copy, because its name is long. No
#: foreign key, which would cost a look-up in all rows for each copy that is deleted.
COPIED = ("robots", "blocklist")
#: What stands in `requests.source` for the URL of the request itself, as nearly everywhere.
ITS_URL = ""

#: The few requests for robots.txt and the blocklist, which have an index. It is text: with a
#: parameter in place of the word SQLite would not use the index.
FOR_RULES: Final = text("purpose <> 'target'")


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


# Numbers come first: between texts each would cost PostgreSQL bytes to align it.
requests = Table(
    "requests",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    # When it was allowed to go out, by the clock that all processes on the state share.
    Column("sent_at", Double, nullable=False),
    # Its row is written with its begin, and completed at the end of the exchange. NULL until then,
    # and for good if the process was killed: it may have been sent, and its end is not known.
    Column("seconds", Double),
    # Seconds from then until it was sent, in which its connection was made.
    Column("waited", Double, nullable=False, server_default="0"),
    # The machine's own clock that is never set, in seconds, at the end of the exchange.
    Column("monotonic", Double, nullable=False, server_default="0"),
    # Seconds: the delay asked for before it, and the hold that its answer began.
    Column("pause", Double, nullable=False),
    Column("hold", Double, nullable=False),
    Column("run", BigInteger),
    *_evidence(),
    Column("status", Integer),
    Column("host", String(255), nullable=False),
    Column("url", Text, nullable=False),
    Column("gates", Text, nullable=False),
    # `target`, `robots` or `blocklist`.
    Column("purpose", String(16), nullable=False),
    # The declared source that a target was for; `ITS_URL`, or NULL for another request.
    Column("source", String(4096)),
    Column("error", Text, nullable=False, server_default=""),
    # The header of its answer, a line each if it came several times; NULL if there was none.
    Column("retry_after", Text),
    Index("requests_by_time", "sent_at"),
    # Without its time a host is there once for many rows of PostgreSQL.
    Index("requests_by_host", "host"),
)
_for_rules = Index("requests_for_rules", requests.c.purpose, requests.c.host, requests.c.sent_at)


@event.listens_for(requests, "before_create")
def _in_dialect(_table: Table, connection: Connection, **_options: object) -> None:
    """Say what only the dialect of the database knows. Earlier it would be imported for that."""
    _for_rules.dialect_kwargs[f"{connection.dialect.name}_where"] = FOR_RULES


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
