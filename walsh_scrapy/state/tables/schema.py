"""What the whole state shares: its version, and the choices of all crawls."""

from __future__ import annotations

from sqlalchemy import Column, Integer, MetaData, String, Table

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
