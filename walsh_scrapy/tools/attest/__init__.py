"""``walsh attest``: the audit of the state database by the checklist."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.wording import count_of, for_others
from walsh_scrapy.sources.source import unique
from walsh_scrapy.state.gaps import gaps
from walsh_scrapy.tools.attest.checklist import CHECKLIST, Tally, Verdict
from walsh_scrapy.tools.attest.documents import check_lists, check_robots, check_targets
from walsh_scrapy.tools.attest.questions import (
    ask_conditional,
    ask_entries,
    ask_identity,
    ask_pace,
    ask_visits,
)
from walsh_scrapy.tools.attest.record import Bot, Record
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.show import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.state.log import Log
    from walsh_scrapy.tools.attest.checklist import ChecklistRow, Finding
    from walsh_scrapy.tools.call import Call

#: The bot for which the checklist was written.
WALSH_RESEARCH: Final = Bot()
_COLUMNS: Final = ("row", "verdict", "count", "requirement")


@dataclass(frozen=True)
class Attestation:
    """The result of an audit."""

    rows: list[dict[str, Any]]  #: one for each row of the checklist, as `--json` prints it
    requests: int  #: the number of audited requests
    entries: int  #: the number of audited entries
    until: float  #: the last moment that was audited

    @property
    def holds(self) -> bool:
        """Whether no rule with the level MUST is broken."""
        findings = (finding for row in self.rows for finding in row["findings"])
        return not any(finding["level"] == "MUST" for finding in findings)


def run(call: Call) -> int:
    """Audit the records; return 1 if a MUST is broken. Raises CommandError without any."""
    with call.state() as state, state.log() as log:
        bot = Bot(*call.identity)
        attestation = attest(log, state.now(), bot, call.arguments.since or 0.0)
    if not attestation.requests and not attestation.entries:
        raise CommandError(
            "there is nothing to attest: the state database has no request and no entry"
        )
    as_json = call.arguments.json
    rows = attestation.rows if as_json else list(_build_table(attestation))
    show(rows, _COLUMNS, as_json=as_json, empty="")
    if not as_json:
        print(_summarize(attestation, bot), file=sys.stdout if sys.stdout.isatty() else sys.stderr)
    return 0 if attestation.holds else 1


def attest(log: Log, now: float, bot: Bot = WALSH_RESEARCH, since: float = 0.0) -> Attestation:
    """Audit the state of a bot at ``now``. Requests before ``since`` are read, but not judged."""
    span = log.bounds(now, since)
    record = Record(log.connection, span, now)
    tally = Tally()
    requests = ask_identity(record, tally, bot)
    delays = check_robots(record, tally)
    check_lists(record, tally)
    ask_pace(record, tally, delays)
    check_targets(record, tally)
    ask_conditional(record, tally)
    ask_visits(record, tally)
    entries = ask_entries(record, tally)
    rows = [_build_row(row, tally, record, bot) for row in CHECKLIST]
    return Attestation(rows, requests, entries, span.until)


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
    elif finding.kind.row in ("4", "5"):
        by_host = f"SELECT gap, delay FROM ({gaps(record.sql)}) g WHERE host = :host AND id = :id"
        (gap,) = record.rows(by_host, host=row.host, id=finding.first)
        detail = "" if gap.gap is None else f"after {gap.gap:.3f} s; delay {gap.delay:.3f} s"
    return row.requested_at, f"{row.url} ({detail})" if detail else row.url


def _build_table(attestation: Attestation) -> Iterator[dict[str, Any]]:
    """Yield the lines of the table: each row, with its findings and with what is not shown."""
    for row in attestation.rows:
        verdict = row["verdict"]
        yield {
            "row": row["row"],
            "verdict": verdict,
            "count": row["shown"],
            "requirement": row["requirement"],
            "problem": "broken" if verdict == Verdict.BROKEN else None,
        }
        for finding in row["findings"]:
            first = finding["first"]
            place = f"{first['table']} {first['id']}" + (f" {first['at']}" if first["at"] else "")
            yield _build_line(
                finding["kind"],
                finding["count"],
                f"{finding['problem']} ({finding['level']}); first: {place} {first['what']}",
                "broken" if finding["level"] == "MUST" else "warning",
            )
        for reason, count in row["not_shown"].items():
            yield _build_line("not shown", count, reason, "warning")
        if row["not_applicable"]:
            yield _build_line("not applicable", None, row["not_applicable"], None)


def _build_line(verdict: str, count: int | None, text: str, problem: str | None) -> dict[str, Any]:
    return {
        "row": None,
        "verdict": verdict,
        "count": count,
        "requirement": text,
        "problem": problem,
    }


def _summarize(attestation: Attestation, bot: Bot) -> str:
    verdicts = [row["verdict"] for row in attestation.rows]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in unique(verdicts))
    requests = count_of(attestation.requests, "request")
    entries = count_of(attestation.entries, "entry", "entries")
    end = "no MUST is broken" if attestation.holds else "a MUST is broken"
    subject = f"{bot.ua_token}, {requests} and {entries} until {rfc3339(attestation.until)}"
    return f"{subject}: {counts}; {end}"
