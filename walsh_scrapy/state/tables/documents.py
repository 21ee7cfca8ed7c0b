"""Documents that decide: robots.txt and blocklist, and the copies of all that were in force."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
)

from walsh_scrapy.state.tables.hosts import metadata

robots = Table(
    "robots",
    metadata,
    Column("origin", String(512), primary_key=True),
    Column("fetched_at", Double, nullable=False),
    Column("status", Integer),
    Column("body", LargeBinary),
    Column("failing_since", Double),
    Column("unused", Boolean, nullable=False),
    Column("validator_url", String(4096)),
    Column("etag", LargeBinary),
    Column("last_modified", LargeBinary),
    # The body by its name in `copies`.
    Column("copy", String(64)),
    Index("robots_by_copy", "copy"),
    Index("robots_by_time", "fetched_at"),
)

# Requests that the copy of an origin made wait, by the SHA-256 of their URLs, until each was sent:
# for them the copy outlives its day (decision 7).
robots_waits = Table(
    "robots_waits",
    metadata,
    Column("origin", ForeignKey("robots.origin", ondelete="CASCADE"), primary_key=True),
    Column("request", String(64), primary_key=True),
)

blocklist = Table(
    "blocklist",
    metadata,
    Column("url", String(2048), primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("etag", LargeBinary),
    Column("last_modified", LargeBinary),
    Column("checked_at", Double, nullable=False),
    Column("copy", String(64)),
)

# Each robots.txt and each blocklist that was in force, and what each run declared, once, by the
# SHA-256 of its bytes. It stays as long as a row of `requests` or `denials` may depend on it
# (decision 33); these have its `id`. A robots.txt names no site: many sites share a body, and what
# is said of one comes from its own requests (decision 36).
copies = Table(
    "copies",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("first_seen", Double, nullable=False),
    # When it was last known to be in force.
    Column("kept_at", Double, nullable=False),
    Index("copies_by_time", "kept_at"),
    # Else the number of a copy that was deleted by hand could become that of another one.
    sqlite_autoincrement=True,
)
