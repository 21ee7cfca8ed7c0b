"""Views of the tables for people: readable times in UTC, the same on SQLite and PostgreSQL.

Times are texts (`2026-05-23 06:00:00`), which sort as times do, and empty for none. Columns that
end in `days_ago` are numbers, so that a question about the last week needs no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

#: The first second of the year 10000: what is due then or later (`NEVER`) has no readable time.
_LAST: Final = 253_402_300_800
#: What of an entry is in its JSON alone.
_FIELDS: Final = (
    "source_title", "title", "url", "published", "updated", "authors", "tags", "section", "note",
    "language",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Dialect:
    """Expressions that each database writes in its own way, with `{}` for a column."""

    moment: str  #: epoch seconds as text
    now: str  #: epoch seconds of its clock
    field: str  #: a field of the JSON of an entry
    text: str  #: bytes as text

    def time(self, column: str) -> str:
        """Return a column of epoch seconds as a text, under its own name."""
        known = f"{column} > 0 AND {column} < {_LAST}"
        return f"CASE WHEN {known} THEN {self.moment.format(column)} END AS {column}"

    def days_ago(self, column: str) -> str:
        """Return how many days ago a moment was."""
        return f"({self.now} - {column}) / 86400.0"

    def field_of(self, name: str) -> str:
        """Return a field of an entry, under its own name."""
        return f"{self.field.format(name)} AS {name}"


_SQLITE: Final = _Dialect(
    moment="datetime({}, 'unixepoch')",
    now="((julianday('now') - 2440587.5) * 86400.0)",
    field="json_extract(item, '$.{}')",
    text="CAST({} AS TEXT)",
)
_POSTGRESQL: Final = _Dialect(
    moment="to_char(to_timestamp({}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')",
    now="extract(epoch FROM now())::double precision",
    field="(item::json ->> '{}')",
    text="encode({}, 'escape')",
)


def create_views(connection: Connection) -> None:
    """Create the views, within the transaction of ``connection``."""
    sql = _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL
    for (name, table), columns in _views(sql).items():
        select = f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - all of it is from here
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {select}")


def _copy_of(column: str) -> str:
    """Return the name of the copy that a column of the log has the number of, under its name."""
    hashes = "SELECT hash FROM copies WHERE copies.id"
    return f"({hashes} = {column}) AS {column}"


def _views(sql: _Dialect) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the columns of each view, by its name and its table."""
    time, days_ago, field = sql.time, sql.days_ago, sql.field_of
    robots, blocklist = _copy_of("robots"), _copy_of("blocklist")
    evidence = (
        *("rule", "line", robots, time("robots_at"), blocklist, "robots_status"),
        "redirected_by",
    )
    newest = days_ago("max(first_seen)")
    of_source = "FROM entries WHERE entries.source = sources.url"
    return {
        ("readable_requests", "requests"): (
            *("id", time("sent_at"), f"{days_ago('sent_at')} AS days_ago", "host", "url", "gates"),
            *("status", "error", "seconds", "waited", "monotonic"),
            *("run", "purpose", "pause", "hold"),
            *("retry_after", *evidence, "CASE source WHEN '' THEN url ELSE source END AS source"),
        ),
        ("readable_denials", "denials"): (
            *("id", time("at"), f"{days_ago('at')} AS days_ago", "host", "url", "gate", "reason"),
            *("run", *evidence),
        ),
        ("readable_copies", "copies"): (
            *("hash", "kind", time("first_seen"), time("kept_at")),
            f"{sql.text.format('body')} AS body",
        ),
        ("readable_sources", "sources"): (
            *("url", "kind", time("fetched_at"), "outcome", "status", "detail", "failures"),
            *(time("failing_since"), time("refused_since")),
            *(time("due_at"), f"due_at <= {sql.now} AS is_due"),
            *("moved_to", time("moved_since"), "move_settled"),
            f"(SELECT count(*) {of_source}) AS entries",
            f"(SELECT {newest} {of_source}) AS newest_days_ago",
        ),
        ("readable_entries", "entries"): (
            *(time("first_seen"), f"{days_ago('first_seen')} AS days_ago", "kind", "source"),
            *map(field, _FIELDS),
            *("backfill", "run", "key"),
        ),
        ("readable_hosts", "hosts"): (
            *("host", "owner", time("busy_until"), f"busy_until > {sql.now} AS is_in_flight"),
            *(time("ended"), "delay", "operator_delay"),
            *(time("hold_since"), time("hold_until"), f"hold_until > {sql.now} AS is_on_hold"),
            *("hold_by", "hold_status", "refusals", "server_errors", "unreachable"),
            time("deferred_at"),
        ),
        ("readable_robots", "robots"): (
            *("origin", time("fetched_at"), "status", time("failing_since")),
            f"{sql.text.format('body')} AS body",
        ),
        ("readable_blocklist", "blocklist"): (
            *("url", time("checked_at"), f"{days_ago('checked_at')} AS days_ago"),
            "length(body) AS bytes",
        ),
        ("readable_overrides", "overrides"): (
            *("id", time("at"), "host", "override", "seconds", "reason"),
        ),
        ("readable_runs", "runs"): (
            *("id", "spider", "command", time("begun"), f"{days_ago('begun')} AS days_ago"),
            *(time("ended"), "ended - begun AS seconds", "how", "summary"),
        ),
    }
