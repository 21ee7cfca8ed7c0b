"""The record that is audited: the runs, the span of time, and the SQL that all questions share.

There are no temporary tables, so a role that may only read can audit. What SQL cannot know comes
into a query as values, or as a parameter in JSON.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import text

from walsh_scrapy.identity import UA_TOKEN, USER_AGENT
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.robots.copy import LONGEST_SETTLING
from walsh_scrapy.state.gaps import GAP_TOLERANCE, clock_steps, end_of_exchange
from walsh_scrapy.state.sql import Sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from walsh_scrapy.state.log import TimeSpan

#: When an exchange of `requests r` was over.
ENDED_AT: Final = end_of_exchange("r")
#: An answer that redirects.
IS_REDIRECT: Final = "(r.status BETWEEN 300 AND 399 AND r.status <> 304)"


class Bot(NamedTuple):
    """The bot of an audit: the identity that an installation declares (R1)."""

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
    declared: str = ""  #: the document of its declared sources, by its hash; empty for none

    @property
    def is_other_bot(self) -> bool:
        """Whether the run had another identity than Walsh-Research (decision 24)."""
        return self.ua_token != UA_TOKEN


class Run(NamedTuple):
    """One run."""

    command: str  #: that requested a URL by hand; empty for a crawl
    facts: RunFacts


class Record:
    """The state of a bot as of one moment."""

    def __init__(self, connection: Connection, span: TimeSpan, now: float) -> None:
        self.sql = Sql.for_dialect(connection.dialect)
        self._connection = connection
        self._span = {"since": span.since, "until": span.until}
        #: Later moments are those of a wrong clock.
        self.future = now + CLOCK_SKEW
        #: Since when the log has each request on which another one may depend.
        self.log_since = self._log_since()
        rows = self.rows("SELECT id, command, settings FROM runs")
        self.runs = {row.id: Run(row.command, _facts(row.settings)) for row in rows}
        steps = [(row.since, row.until) for row in self.rows(clock_steps(self.sql))]
        values = ", ".join(f"({since!r}, {until!r})" for since, until in steps or [(0.0, 0.0)])
        #: The spans in which a clock was set, and the facts of each run, as two CTEs.
        self.shared = f"clock_steps(since, until) AS (VALUES {values}), {self._terms()}"

    def rows(self, sql: str, **params: Any) -> Iterator[Any]:  # noqa: ANN401 - of any type
        """Yield the rows of a query; `:since` and `:until` are the span of the audit."""
        span = {name: value for name, value in self._span.items() if f":{name}" in sql}
        yield from self._connection.execute(text(sql), span | params)

    def first(self, sql: str, **params: Any) -> Any:  # noqa: ANN401 - of any type
        """Return the first row of a query; None if there is none."""
        return self._connection.execute(text(sql), params).first()

    def copy(self, name: int | str) -> bytes | None:
        """Return a document by its number or its hash; None if it is no longer kept."""
        column = "id" if isinstance(name, int) else "sha256"
        row = self.first(f"SELECT body FROM copies WHERE {column} = :name", name=name)
        return None if row is None else bytes(row.body)

    def if_certain(self, kind: str, reason: str, since: str, at: str) -> str:
        """Return the kind of a finding, in SQL, or the reason if a clock was set in between."""
        first, last = self.sql.least(since, at), self.sql.greatest(since, at)
        return f"""CASE WHEN EXISTS (SELECT 1 FROM clock_steps s
            WHERE s.since <= {last} + {GAP_TOLERANCE} AND s.until >= {first} - {GAP_TOLERANCE})
            THEN '{reason}' ELSE '{kind}' END"""

    def _log_since(self) -> float:
        row = self.first("SELECT id, requested_at FROM requests ORDER BY requested_at, id LIMIT 1")
        if row is None:
            return 0.0
        # A row that was deleted may have brought a robots.txt that counted only later.
        return float(row.requested_at) + (0.0 if row.id == 1 else LONGEST_SETTLING)

    def _terms(self) -> str:
        """Return the facts of each run that queries need.

        Runs with the same settings have the same `terms`, which is the number of the first one.
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
def _facts(settings: str) -> RunFacts:
    values = json.loads(settings)
    defaults = RunFacts._field_defaults
    return RunFacts(**{name: values.get(name, default) for name, default in defaults.items()})
