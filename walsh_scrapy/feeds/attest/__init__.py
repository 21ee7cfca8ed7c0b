"""The audit of a state by the checklist of the contract, for `walsh attest`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.feeds.attest.pacechecks import ask_pace, ask_retries
from walsh_scrapy.feeds.attest.record import CHECKLIST, Bot, Record, Tally
from walsh_scrapy.feeds.attest.rowchecks import (
    ask_conditional,
    ask_entries,
    ask_identity,
    ask_visits,
    check_lists,
    check_robots,
    check_targets,
    count_others,
)
from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.wording import for_others
from walsh_scrapy.state.gaps import gaps

if TYPE_CHECKING:
    from walsh_scrapy.feeds.attest.record import ChecklistRow, Finding
    from walsh_scrapy.state.evidence import Log

#: The bot for which the checklist was written.
WALSH_RESEARCH: Final = Bot()


@dataclass(frozen=True)
class Attestation:
    """The result of an audit."""

    rows: list[dict[str, Any]]  #: one for each row of the checklist, as `--json` prints it
    requests: int  #: the number of audited requests
    entries: int  #: the number of audited entries
    until: float  #: the last moment that was audited
    others: dict[str, int]  #: the requests of other bots, which are not judged, by product token

    @property
    def holds(self) -> bool:
        """Whether no rule with the level MUST is broken."""
        findings = (finding for row in self.rows for finding in row["findings"])
        return not any(finding["level"] == "MUST" for finding in findings)


def attest(log: Log, now: float, bot: Bot = WALSH_RESEARCH, since: float = 0.0) -> Attestation:
    """Audit the state of a bot at ``now``. Requests before ``since`` are read, but not judged.

    Nor are those of other bots that use the same state.
    """
    span = log.bounds(now, since)
    record = Record(log.connection, span, now, bot)
    tally = Tally()
    requests = ask_identity(record, tally, bot)
    waits = check_robots(record, tally)
    check_lists(record, tally)
    ask_pace(record, tally, waits)
    ask_retries(record, tally)
    check_targets(record, tally)
    ask_conditional(record, tally)
    ask_visits(record, tally)
    entries = ask_entries(record, tally)
    rows = [_build_row(row, tally, record, bot) for row in CHECKLIST]
    return Attestation(rows, requests, entries, span.until, count_others(record))


def _build_row(row: ChecklistRow, tally: Tally, record: Record, bot: Bot) -> dict[str, Any]:
    findings = tally.findings_of(row.number)
    return {
        "row": row.number,
        "rule": row.rule,
        "level": row.level,
        "requirement": row.requirement.replace(UA_TOKEN, bot.ua_token),
        "verdict": tally.verdict(row.number).value,
        "shown": tally.shown[row.number],
        "not_shown": tally.reasons_of(row.number),
        "not_applicable": tally.waived.get(row.number),
        "findings": [_build_finding(finding, record) for finding in findings],
    }


def _build_finding(finding: Finding, record: Record) -> dict[str, Any]:
    kind = finding.kind
    at, description = (
        _describe(finding, record) if kind.table == "requests" else (None, finding.detail)
    )
    return {
        "kind": kind.name,
        "level": kind.level,
        "problem": kind.problem,
        "count": finding.count,
        "first": {
            "table": kind.table,
            "id": finding.first,
            "at": rfc3339(at),
            "what": for_others(description),
        },
    }


def _describe(finding: Finding, record: Record) -> tuple[float, str]:
    """Return the time of the first request of a finding, and its URL with the circumstances."""
    find = "SELECT requested_at, url, host, status, hold FROM requests WHERE id = :id"
    (row,) = record.rows(find, id=finding.first)
    detail = finding.detail
    if finding.kind.name in ("no-hold", "short-hold", "no-growth"):
        detail = f"answered {row.status}, hold of {row.hold:.3f} s"
    elif finding.kind.row in ("4", "5") and not detail:
        by_host = f"SELECT gap, delay FROM ({gaps(record.sql)}) g WHERE host = :host AND id = :id"
        (gap,) = record.rows(by_host, host=row.host, id=finding.first)
        detail = "" if gap.gap is None else f"after {gap.gap:.3f} s; delay {gap.delay:.3f} s"
    return row.requested_at, f"{row.url} ({detail})" if detail else row.url
