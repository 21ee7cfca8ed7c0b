"""Sources: what is declared, and what is known of each."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    false,
)

from walsh_scrapy.state.tables.hosts import metadata

sources = Table(
    "sources",
    metadata,
    Column("url", String(4096), primary_key=True),
    Column("kind", String(16), nullable=False),
    # The ends of its first visit and of its last one.
    Column("visited_since", Double),
    Column("fetched_at", Double),
    Column("due_at", Double, nullable=False, server_default="0"),
    Column("outcome", String(32), nullable=False),
    Column("detail", Text, nullable=False, server_default=""),
    Column("failures", Integer, nullable=False, server_default="0"),
    # The first of these failures; empty if there are none.
    Column("failing_since", Double),
    Column("status", Integer),
    # The first refusal (429, 503) of the row that goes on; empty if the last visit was none.
    Column("refused_since", Double),
    # Seconds that the responses of the last visit asked for; `due_at` depends on more than that.
    Column("asked_interval", Double, nullable=False, server_default="0"),
    # Update hints of the feed: seconds; hours and days to skip, separated by commas.
    Column("wished_interval", Double, nullable=False, server_default="0"),
    Column("skip_hours", String(80), nullable=False, server_default=""),
    Column("skip_days", String(80), nullable=False, server_default=""),
    # Where permanent redirects led, since when, and whether it is requested there (decision 21).
    Column("moved_to", String(4096)),
    Column("moved_since", Double),
    Column("move_settled", Boolean, nullable=False, server_default=false()),
    # Since when visits fail there; and where it redirects to from there, since when.
    Column("move_failing_since", Double),
    Column("onward_to", String(4096)),
    Column("onward_since", Double),
    # Validators belong to one URL, and are never sent to another (decision 17).
    Column("validator_url", String(4096)),
    Column("etag", LargeBinary),
    Column("last_modified", LargeBinary),
    # SHA-256 of the last document, and how many times in a row it came again as a whole although
    # its validators were sent: the site seems to know no 304.
    Column("body_hash", String(64)),
    Column("resent", Integer, nullable=False, server_default="0"),
    # As what its last document was read; empty if none was.
    Column("format", String(40), nullable=False, server_default=""),
    # Increased with every change, as that of a host.
    Column("revision", BigInteger, nullable=False, server_default="0"),
    # Of its canonical URL: all spellings of a URL share it, and a declared one has it too.
    Column("url_key", BigInteger, nullable=False),
    Index("sources_by_key", "url_key"),
)

# One row for each sources file that was read, as it was then (decision 40).
files = Table(
    "files",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("path", String(4096), nullable=False, unique=True),
    # Empty while what the file declares is being written.
    Column("sha256", String(64), nullable=False, server_default=""),
    # 0 if the file was so young that it may have changed without another time.
    Column("mtime_ns", BigInteger, nullable=False, server_default="0"),
    Column("size", BigInteger, nullable=False, server_default="0"),
    Column("pace_by", String(16), nullable=False, server_default=""),
    # JSON: what each run warns of, and the longest pause of each host, in seconds.
    Column("warnings", Text, nullable=False, server_default="[]"),
    Column("pauses", Text, nullable=False, server_default="{}"),
    # What it declares, as the record keeps it: the name of a copy.
    Column("copy", String(64), nullable=False, server_default=""),
    # When a run last read it, noted once a day.
    Column("read_at", Double, nullable=False),
)

# Each source of each file, and what decides when it is due (decision 40). What is not declared is
# written together with its record in `sources`.
declared = Table(
    "declared",
    metadata,
    Column("url_key", BigInteger, primary_key=True, autoincrement=False),
    Column("file", Integer, primary_key=True),
    Column("url", String(4096), nullable=False),
    Column("kind", String(16), nullable=False),
    # Its place among the sources of the file.
    Column("position", Double, nullable=False),
    Column("every", Double, nullable=False),
    Column("pause", Double),
    # JSON: its name, tags, page and folders; empty if it has none of them.
    Column("details", Text, nullable=False),
    # What is paced together with the URL that is requested: its host or domain.
    Column("host", String(255), nullable=False),
    # The end of its last visit; empty if there was none, or if the operator resumed it.
    Column("fetched_at", Double),
    # By what its failures multiply the operator's interval; seconds that site and feed ask for.
    Column("growth", Double, nullable=False),
    Column("asked", Double, nullable=False),
    Column("is_gone", Boolean, nullable=False),
    # Whether its feed names hours or days to skip.
    Column("has_skips", Boolean, nullable=False),
    # All that decides whether a source is due, so that the question reads nothing else.
    Index(
        "declared_by_host",
        *("file", "kind", "has_skips", "host", "fetched_at", "growth", "every", "asked"),
        *("is_gone", "position", "url_key"),
    ),
)

# The llms.txt of a host, requested once for all its sources that need it (R9).
indexes = Table(
    "indexes",
    metadata,
    Column("url", String(4096), primary_key=True),
    Column("asked_at", Double, nullable=False),
    Column("due_at", Double, nullable=False),
    Column("trouble", Text, nullable=False),
    Column("validator_url", String(4096)),
    Column("etag", LargeBinary),
    Column("last_modified", LargeBinary),
)
