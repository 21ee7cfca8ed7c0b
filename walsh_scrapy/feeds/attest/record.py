"""The record that is audited: the runs, the time span, and the SQL that all checks share.

The audit uses no temporary tables, so that a read-only role of the database can run it. Values that
SQL cannot compute are written into a query, or passed as a JSON parameter.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import text

from walsh_scrapy.identity import UA_TOKEN, USER_AGENT
from walsh_scrapy.policy.durations import CLOCK_SKEW
from walsh_scrapy.policy.robots.copy import MAX_SETTLING_SECONDS
from walsh_scrapy.state.gaps import GAP_TOLERANCE, clock_steps, end_of_exchange
from walsh_scrapy.state.sql import Sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from walsh_scrapy.state.evidence import TimeSpan

#: The end of an exchange of `requests r`.
ENDED_AT: Final = end_of_exchange("r")
#: Whether the answer is a redirect.
IS_REDIRECT: Final = "(r.status BETWEEN 300 AND 399 AND r.status <> 304)"


class Bot(NamedTuple):
    """The bot of an audit, by its identity."""

    user_agent: str = USER_AGENT
    ua_token: str = UA_TOKEN


class RunFacts(NamedTuple):
    """The settings of a run that an audit needs."""

    user_agent: str = ""
    ua_token: str = ""
    blocklist_url: str = ""
    blocklist_schema_url: str = ""
    robots_unreachable: str = ""
    scope: str = ""
    serial: bool = True
    declared: str = ""  #: the SHA-256 of the document with the declared sources, or ""

    @property
    def is_other_bot(self) -> bool:
        """Whether the run did not have the identity of Walsh-Research."""
        return self.ua_token != UA_TOKEN


class Run(NamedTuple):
    """One run of the audited bot."""

    command: str  #: the command that requested a URL by hand, or "" for a crawl
    facts: RunFacts


class Record:
    """The state of a bot as of one moment."""

    def __init__(self, connection: Connection, span: TimeSpan, now: float) -> None:
        self.sql = Sql.for_dialect(connection.dialect)
        self._connection = connection
        self._span = {"since": span.since, "until": span.until}
        #: Times after this come from a wrong clock.
        self.future = now + CLOCK_SKEW
        #: From this time on, the log has every request on which a later request may depend.
        self.log_since = self._find_log_start()
        rows = self.rows("SELECT id, command, settings FROM runs")
        self.runs = {row.id: Run(row.command, _read_facts(row.settings)) for row in rows}
        steps = [(row.since, row.until) for row in self.rows(clock_steps(self.sql))]
        values = ", ".join(f"({since!r}, {until!r})" for since, until in steps or [(0.0, 0.0)])
        #: Two CTEs: the time spans in which a clock was set, and the facts of each run.
        self.shared = f"clock_steps(since, until) AS (VALUES {values}), {self._terms_sql()}"

    def rows(self, sql: str, **params: Any) -> Iterator[Any]:  # noqa: ANN401 - columns have any type
        """Yield the rows of a query, in which `:since` and `:until` are the span of the audit."""
        span = {name: value for name, value in self._span.items() if f":{name}" in sql}
        yield from self._connection.execute(text(sql), span | params)

    def first(self, sql: str, **params: Any) -> Any:  # noqa: ANN401 - columns have any type
        """Return the first row of a query, or None."""
        return self._connection.execute(text(sql), params).first()

    def copy(self, name: int | str) -> bytes | None:
        """Return a document by its number or its SHA-256, or None if it is no longer stored."""
        column = "id" if isinstance(name, int) else "sha256"
        row = self.first(f"SELECT body FROM copies WHERE {column} = :name", name=name)
        return None if row is None else bytes(row.body)

    def if_certain(self, kind: str, reason: str, since: str, at: str) -> str:
        """Return SQL for the kind of a finding, or for the reason if a clock was set in between."""
        first = self.sql.least(since, at)
        last = self.sql.greatest(since, at)
        return f"""CASE WHEN EXISTS (SELECT 1 FROM clock_steps s
            WHERE s.since <= {last} + {GAP_TOLERANCE} AND s.until >= {first} - {GAP_TOLERANCE})
            THEN '{reason}' ELSE '{kind}' END"""

    def _find_log_start(self) -> float:
        row = self.first("SELECT id, requested_at FROM requests ORDER BY requested_at, id LIMIT 1")
        if row is None:
            return 0.0
        # A request that was deleted may have fetched a robots.txt that became valid only later.
        return float(row.requested_at) + (0.0 if row.id == 1 else MAX_SETTLING_SECONDS)

    def _terms_sql(self) -> str:
        """Return a CTE with the facts of each run.

        Runs with the same settings have the same `terms`: the number of the first of these runs.
        """
        fields = {
            "token": ("ua_token", "TEXT"),
            "list_url": ("blocklist_url", "TEXT"),
            "scope": ("scope", "TEXT"),
            "serial": ("serial", "TEXT"),
            "force": ("force", "TEXT"),
            "base": ("backoff_base", "DOUBLE PRECISION"),
            "longest": ("backoff_max", "DOUBLE PRECISION"),
        }
        columns = ", ".join(
            f"CAST({self.sql.field('runs.settings', name)} AS {kind}) AS {column}"
            for column, (name, kind) in fields.items()
        )
        return f"""terms AS MATERIALIZED (
            SELECT runs.id AS run, alike.first AS terms, runs.command, runs.started_at,
                runs.ended_at, runs.finish_reason, {columns}
            FROM runs JOIN (SELECT min(id) AS first, settings, command FROM runs
                GROUP BY settings, command) alike
            ON alike.settings = runs.settings AND alike.command = runs.command)"""


@lru_cache(1000)
def _read_facts(settings: str) -> RunFacts:
    values = json.loads(settings)
    return RunFacts(
        **{name: values.get(name, default) for name, default in RunFacts._field_defaults.items()}
    )
