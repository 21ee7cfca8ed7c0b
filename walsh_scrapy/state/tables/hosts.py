"""What all rooms share, and hosts: when each may be asked, by which worker, and the acts on it."""

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

# No index for pruning: a run writes its rows more often than it reads all of them.
hosts = Table(
    "hosts",
    metadata,
    Column("host", String(255), primary_key=True),
    Column("ended", Double),
    Column("interval", Double, nullable=False, server_default="0"),
    Column("hold_since", Double, nullable=False, server_default="0"),
    Column("hold_until", Double, nullable=False, server_default="0"),
    # What began the hold, and the status of the answer that did; 0 if none did.
    Column("hold_by", String(16), nullable=False, server_default=""),
    Column("hold_status", Integer, nullable=False, server_default="0"),
    Column("lease_since", Double, nullable=False, server_default="0"),
    Column("lease_until", Double, nullable=False, server_default="0"),
    Column("holder", String(32), nullable=False, server_default=""),
    # When a worker put off the rest of its work there (decision 41).
    Column("put_off_at", Double, nullable=False, server_default="0"),
    Column("strikes", Integer, nullable=False, server_default="0"),
    Column("struck_at", Double, nullable=False, server_default="0"),
    # Attempts in a row in which the host was unreachable, and the last of them (decision 28).
    Column("silences", Integer, nullable=False, server_default="0"),
    Column("silent_at", Double, nullable=False, server_default="0"),
    # Answers of 500, 502 and 504 in a row: each doubles the spacing (decision 28).
    Column("server_errors", Integer, nullable=False, server_default="0"),
    # The least spacing that the operator asks for; nothing else changes it (decision 31).
    Column("pause", Double, nullable=False, server_default="0"),
    # Increased with every change: an update names the revision it read (compare-and-set), so only
    # one of two processes gets a host.
    Column("revision", BigInteger, nullable=False, server_default="0"),
)

# Crawls that claim hosts, each until it says again that it lives (decision 41).
workers = Table(
    "workers",
    metadata,
    Column("holder", String(32), primary_key=True),
    Column("run", BigInteger),
    Column("began", Double, nullable=False),
    Column("until", Double, nullable=False),
)

# What the operator did to hosts, and why: kept for good (decision 31).
acts = Table(
    "acts",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Double, nullable=False),
    Column("host", String(255), nullable=False),
    Column("act", String(16), nullable=False),
    # The new pause, or what was left of the hold.
    Column("seconds", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Index("acts_by_host", "host"),
)
