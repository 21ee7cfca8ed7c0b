"""What all checks of an audit share: the checklist of the contract (section 8), and the record.

The record has the runs, the time span, and the SQL of several checks. The audit uses no temporary
tables, so that a read-only role of the database can run it. Values that SQL cannot compute are
written into a query, or passed as a JSON parameter.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

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

Level: TypeAlias = Literal["MUST", "SHOULD"]

#: Reasons why a request shows nothing. Each is a sentence with the request as its subject.
NO_RUN: Final = "names no run that is recorded"
NO_COPY: Final = "names a copy of robots.txt that is not kept"
UNNAMED_COPY: Final = "names no copy of the robots.txt that was read"
NO_FETCH: Final = "names a robots.txt whose request is not recorded"
NO_LIST: Final = "names a blocklist that is not kept"
CLOCK_SET: Final = "was recorded about when a clock was set"
END_UNKNOWN: Final = "was sent, end unknown"
AFTER_UNKNOWN: Final = "came next after a request whose end is unknown"
IN_FUTURE: Final = "is recorded for a moment in the future"
FORGOTTEN: Final = "was deleted by the operator (walsh forget)"


class ChecklistRow(NamedTuple):
    """One row of the checklist."""

    number: str  #: as in the contract: "1", "2a", ...
    rule: str  #: "R1" to "R9"
    level: str  #: "MUST", "SHOULD", or "SHOULD / MUST NOT"
    requirement: str


#: Rows 3c and 9 have SHOULD in the contract, and sections 5.2 and 6.4 add a MUST NOT to them.
CHECKLIST: Final = (
    ChecklistRow("1", "R1", "MUST", "Exact User-Agent string"),
    ChecklistRow("2", "R2", "MUST", "robots.txt fetched and obeyed, RFC 9309 group selection"),
    ChecklistRow("2a", "R2", "MUST", "Named Walsh-Research group overrides *"),
    ChecklistRow("3", "R3", "MUST", "Operator blocklist consulted, checked before robots.txt"),
    ChecklistRow("3a", "R3", "MUST", "Blocklist matches apex and subdomains"),
    ChecklistRow("3b", "R3", "MUST", "Last blocklist retained on fetch failure"),
    ChecklistRow(
        "3c", "R3", "SHOULD / MUST NOT", "Blocklist validated by its schema; invalid rejected"
    ),
    ChecklistRow("4", "R4", "MUST", "Serial; at most 1 request/s/domain; Crawl-delay honoured"),
    ChecklistRow("5", "R5", "MUST", "429/503: exponential backoff and jitter; Retry-After"),
    ChecklistRow("6", "R6", "MUST", "No recursion, no sub-resources, metadata only"),
    ChecklistRow("7", "R7", "SHOULD", "Conditional fetch and dedup"),
    ChecklistRow("8", "R8", "SHOULD", "Infrequent: daily or less per source"),
    ChecklistRow(
        "9", "R9", "SHOULD / MUST NOT", "Feed-less: markdown or llms.txt; never scrape HTML"
    ),
)


class Kind(NamedTuple):
    """A kind of finding."""

    name: str  #: the name in JSON and in the documentation
    row: str
    level: Level
    problem: str
    table: str = "requests"  #: the table whose rows are counted


_KINDS: Final = (
    Kind("user-agent", "1", "MUST", "a run sent a different User-Agent"),
    Kind("no-robots", "2", "MUST", "a request was sent without a robots.txt"),
    Kind("denied", "2", "MUST", "a request was sent although robots.txt denied it"),
    Kind("old-robots", "2", "MUST", "a robots.txt was used for longer than a day"),
    Kind("robots-elsewhere", "2", "MUST", "the robots.txt of another origin decided"),
    Kind(
        "denied-by-name",
        "2a",
        "MUST",
        "a request was sent although the group with the name of the bot denied it",
    ),
    Kind("no-blocklist", "3", "MUST", "the blocklist was not consulted"),
    Kind("robots-first", "3", "MUST", "robots.txt was checked before the blocklist"),
    Kind("listed", "3", "MUST", "a request went to a domain that was listed at the time"),
    Kind("stale-list", "3", "MUST", "a blocklist was used after its refresh time"),
    Kind("listed-above", "3a", "MUST", "a request went to a subdomain of a listed domain"),
    Kind("forgotten-list", "3b", "MUST", "an active blocklist was not used any more"),
    Kind("invalid-list", "3c", "MUST", "an invalid blocklist was used", "copies"),
    Kind("short-gap", "4", "MUST", "a gap was shorter than the required delay"),
    Kind("host-at-once", "4", "MUST", "a host had two requests at once"),
    Kind("run-at-once", "4", "MUST", "a run had two requests at once"),
    Kind("visit-time", "4", "SHOULD", "a request was sent outside of the Visit-time"),
    Kind("too-early", "5", "MUST", "a host got a request before its hold ended"),
    Kind("no-hold", "5", "MUST", "a host was not on hold after a refusal"),
    Kind("short-hold", "5", "MUST", "a hold was shorter than the Retry-After"),
    Kind("no-growth", "5", "MUST", "the holds after refusals in a row did not double"),
    Kind("no-jitter", "5", "MUST", "20 holds in a row had no jitter"),
    Kind("many-tries", "5", "SHOULD", "a run tried a URL more often than WALSH_MAX_RETRIES allows"),
    Kind("early-hop", "5", "SHOULD", "a redirect was followed before its Retry-After ended"),
    Kind("undeclared", "6", "MUST", "a URL was requested that no source declares"),
    Kind("content", "6", "MUST", "an entry has more than metadata", "entries"),
    Kind("duplicate", "7", "SHOULD", "an entry is stored twice", "entries"),
    Kind(
        "reported-again",
        "7",
        "SHOULD",
        "a run reported entries as new that were already stored",
        "runs",
    ),
    Kind("too-often", "8", "SHOULD", "a source was visited again within a day"),
    Kind("gone-again", "8", "SHOULD", "a source that is gone (410) was requested again"),
    Kind("scraped", "9", "MUST", "an entry comes from neither a feed nor markdown", "entries"),
)
KINDS: Final = {kind.name: kind for kind in _KINDS}


class Verdict(StrEnum):
    """The verdict about one row of the checklist."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    NOT_SHOWN = "not shown"  #: some requests do not show it, or there is no request to show it
    IN_PART = "holds in part"  #: some clauses do not apply to this bot
    NOT_APPLICABLE = "not applicable"  #: no clause applies to this bot


@dataclass
class Finding:
    """The stored rows that break a requirement in one way."""

    kind: Kind
    count: int
    first: int | str  #: the number or the key of the first row
    detail: str  #: more about the first row, or ""


@dataclass
class Tally:
    """The outcomes of all checks, by row of the checklist."""

    shown: Counter[str] = field(default_factory=Counter)
    #: The number of requests or entries that do not show it, by row and reason.
    not_shown: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: The clauses of each row that do not apply to this bot.
    waived: dict[str, str] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, row: str, outcome: str, count: int, first: int | str, detail: str = "") -> None:
        """Add the number of stored rows that have one outcome for a row of the checklist.

        The outcome is the name of a kind of finding, or the reason why the rows show nothing, or ""
        if they show that the requirement was kept.
        """
        kind = KINDS.get(outcome)
        if kind is not None:
            finding = self.findings.setdefault(outcome, Finding(kind, 0, first, detail))
            finding.count += count
            if first < finding.first:  # type: ignore[operator]  # both are numbers, or both are keys
                finding.first = first
                finding.detail = detail
        elif outcome:
            self.not_shown[row, outcome] += count
        else:
            self.shown[row] += count

    def findings_of(self, row: str) -> list[Finding]:
        """Return the findings of a row."""
        return [finding for finding in self.findings.values() if finding.kind.row == row]

    def reasons_of(self, row: str) -> dict[str, int]:
        """Return the number of requests or entries that do not show it, by reason."""
        return {
            reason: count for (number, reason), count in self.not_shown.items() if number == row
        }

    def verdict(self, row: str) -> Verdict:
        """Return the verdict about a row."""
        if self.findings_of(row):
            return Verdict.BROKEN
        if self.reasons_of(row):
            return Verdict.NOT_SHOWN
        if row in self.waived:
            return Verdict.IN_PART if self.shown[row] else Verdict.NOT_APPLICABLE
        return Verdict.HOLDS if self.shown[row] else Verdict.NOT_SHOWN


#: The end of an exchange of `requests r`.
ENDED_AT: Final = end_of_exchange("r")
#: Whether `requests r` is in the span of the audit.
IN_SPAN: Final = "r.requested_at >= :since AND r.requested_at <= :until"
#: Whether the answer to the last request for robots.txt was a failure.
IS_ROBOTS_FAILURE: Final = (
    "(r.robots_status IS NULL OR r.robots_status = 429 OR r.robots_status >= 500)"
)
#: Whether a robots.txt was read for `requests r`, but the row does not name it.
LACKS_COPY: Final = f"(r.robots IS NULL AND r.robots_at IS NOT NULL AND NOT {IS_ROBOTS_FAILURE})"
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
    max_wait: float = 0.0
    declared: str = ""  #: the SHA-256 of the document with the declared sources, or ""

    @property
    def is_other_bot(self) -> bool:
        """Whether the run did not have the identity of Walsh-Research."""
        return self.ua_token != UA_TOKEN

    def is_of(self, bot: Bot) -> bool:
        """Return True for a run of this bot, and for one whose name is not recorded."""
        return self.ua_token.lower() in ("", bot.ua_token.lower())


class Run(NamedTuple):
    """One run of the audited bot."""

    command: str  #: the command that requested a URL by hand, or "" for a crawl
    facts: RunFacts


class Record:
    """The state of a bot as of one moment.

    Other bots may use the same state. Their requests are not judged, but gaps count from them too.
    """

    def __init__(self, connection: Connection, span: TimeSpan, now: float, bot: Bot) -> None:
        self.sql = Sql.for_dialect(connection.dialect)
        self._connection = connection
        self._span = {"since": span.since, "until": span.until}
        #: Times after this come from a wrong clock.
        self.future = now + CLOCK_SKEW
        #: From this time on, the log has every request on which a later request may depend.
        self.log_since = self._find_log_start()
        rows = self.rows("SELECT id, command, settings FROM runs")
        runs = {row.id: Run(row.command, _read_facts(row.settings)) for row in rows}
        #: The runs of the bot, and those of other bots, by their numbers.
        self.runs = {number: run for number, run in runs.items() if run.facts.is_of(bot)}
        self.runs_of_others = {
            number: run for number, run in runs.items() if number not in self.runs
        }
        #: The condition that a row `r` with a `run` is no other bot's.
        self.is_of_bot = "1 = 1"
        if self.runs_of_others:
            token = self.sql.field("settings", "ua_token")
            self.is_of_bot = f"""coalesce(r.run, 0) NOT IN (SELECT id FROM runs
                WHERE lower(coalesce({token}, '')) NOT IN ('', '{bot.ua_token.lower()}'))"""
        #: The condition that a request `r` is judged.
        self.is_judged = f"{IN_SPAN} AND {self.is_of_bot}"
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
            "kind": ("kind", "TEXT"),
            "max_retries": ("max_retries", "DOUBLE PRECISION"),
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


def is_true_sql(value: str) -> str:
    """Return the condition that a boolean in JSON is true, as SQLite or PostgreSQL writes it."""
    return f"{value} IN ('1', 'true')"
