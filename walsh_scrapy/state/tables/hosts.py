"""What all packages share; hosts and their workers; the overrides of the operator."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

# One row; `schema` says what follows from it.
schema_version = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

# Settings that all crawls on this state must share: `pace_by`, what a row of `hosts` stands for.
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
    Column("owner", String(32), nullable=False, server_default=""),
    Column("busy_until", Double, nullable=False, server_default="0"),
    Column("ended", Double),
    Column("delay", Double, nullable=False, server_default="0"),
    Column("hold_since", Double, nullable=False, server_default="0"),
    Column("hold_until", Double, nullable=False, server_default="0"),
    Column("hold_by", String(16), nullable=False, server_default=""),
    Column("hold_status", Integer, nullable=False, server_default="0"),
    Column("refusals", Integer, nullable=False, server_default="0"),
    Column("server_errors", Integer, nullable=False, server_default="0"),
    Column("unreachable", Integer, nullable=False, server_default="0"),
    Column("deferred_at", Double, nullable=False, server_default="0"),
    Column("operator_delay", Double, nullable=False, server_default="0"),
    postgresql_with={"fillfactor": 80},  # an update finds room on its page
)
workers = Table(
    "workers",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("run", BigInteger),
    Column("began", Double, nullable=False),
    Column("until", Double, nullable=False),
)
# What the operator did to hosts, and why: kept permanently (decision 31).
overrides = Table(
    "overrides",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Double, nullable=False),
    Column("host", String(255), nullable=False),
    Column("override", String(16), nullable=False),
    Column("seconds", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Index("overrides_by_host", "host"),
)
