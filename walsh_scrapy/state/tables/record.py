"""The record: runs and entries."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    event,
    false,
)

from walsh_scrapy.state.tables.hosts import metadata

# One row for each run; `ended` is empty while it goes on, and for good if it was killed.
runs = Table(
    "runs",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("spider", String(255), nullable=False),
    # The command that asked for a URL by hand; empty for a crawl (decision 39).
    Column("command", String(32), nullable=False, server_default=""),
    Column("begun", Double, nullable=False),
    Column("ended", Double),
    # How it ended, as Scrapy names it: `finished`, `shutdown`, `state_failed`, ...
    Column("how", String(255), nullable=False, server_default=""),
    # JSON objects: versions and settings in force at its begin, and the summary of its end.
    Column("versions", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("summary", Text, nullable=False, server_default="{}"),
    Index("runs_by_time", "begun"),
)

entries = Table(
    "entries",
    metadata,
    # The key of its page; its own key if another entry of that page was there before (decision 19).
    Column("key", String(64), primary_key=True),
    # The key of its page if that is not in `key`.
    Column("page_key", String(64)),
    Column("own_key", String(64), nullable=False),
    Column("title_key", String(64)),
    Column("source", String(4096), ForeignKey("sources.url"), nullable=False),
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
    Column("source", String(4096), primary_key=True),
    Index("sightings_by_source", "source"),
)

# Few entries have a row. No two of one page have one title, even if two processes insert them. An
# `Index` with a condition would import the dialects of both databases.
event.listen(
    entries,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]
        "CREATE UNIQUE INDEX entries_by_page ON entries (page_key, title_key) "
        "WHERE page_key IS NOT NULL"
    ),
)
