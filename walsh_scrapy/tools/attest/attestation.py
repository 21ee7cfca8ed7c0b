"""The audit of the record, and the attestation that it ends in: in words, and as JSON.

`attestation.schema.json` describes the JSON object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.identity import SPEC_VERSION, UA_TOKEN, USER_AGENT
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.policy.audit.checklist import Breach, Case, Findings, Kind, verdicts
from walsh_scrapy.policy.audit.clocks import CLOCK_SET_BACK
from walsh_scrapy.policy.audit.firstrequests import FirstRequestAudit
from walsh_scrapy.policy.audit.gates import BlocklistAudit, IdentityAudit, RobotsAudit
from walsh_scrapy.policy.audit.pauses import HostAudit, SerialAudit
from walsh_scrapy.policy.audit.record import Bot
from walsh_scrapy.policy.audit.targets import TargetAudit
from walsh_scrapy.policy.audit.visits import EntryAudit, FrequencyAudit
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.wording import count_of, for_others
from walsh_scrapy.tools import own_version
from walsh_scrapy.tools.attest.digests import FORMAT, Digester, seal, take_all
from walsh_scrapy.tools.attest.owncrawl import trials_of
from walsh_scrapy.tools.output import columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.policy.audit.checklist import Breaches, RowVerdict, Trial
    from walsh_scrapy.policy.audit.record import Basis
    from walsh_scrapy.state.auditrecord import Bounds, RunRow
    from walsh_scrapy.state.log import Log
    from walsh_scrapy.tools.attest.digests import Digests

#: The bot of the contract.
WALSH_RESEARCH: Final = Bot(USER_AGENT, UA_TOKEN)
#: The settings on which the checklist depends.
_SETTINGS: Final = (
    "user_agent",
    "ua_token",
    "blocklist_url",
    "blocklist_schema_url",
    "min_interval",
    "serial",
    "scope",
    "pace_by",
    "latency_factor",
    "robots_ttl",
    "robots_unreachable",
    "max_retries",
    "backoff_base",
    "backoff_max",
    "min_revisit",
    "log_days",
    "signing_key",
)
_COLUMNS: Final = frozenset(column.name for column in fields(EntryItem))

#: Figures of the record in other words than their names.
_FIGURES: Final = {
    "least_beyond_asked": "seconds to spare",
    "compared_with_protego": "compared with Protego",
    "denied_though_allowed": "denied though the copy allows it",
    "denied_though_protego_allows": "denied though Protego allows it",
    "asked_before_the_record": "robots.txt of before the record",
    "before_the_first_list": "before the first list",
    "fetched_before_the_record": "by a list of before the record",
    "denied_though_not_listed": "denied though not listed",
    "asked_again": "asked for again",
    "unchanged": "unchanged (304)",
    "by_hand": "asked for by hand",
}
_CELLS: Final = ("row", "verdict", "requirement")
_INDENT: Final = " " * 6


def attest(
    log: Log,
    now: float,
    scorecard: Mapping[str, Any] | None = None,
    bot: Bot = WALSH_RESEARCH,
) -> dict[str, Any]:
    """Judge the record, and return the attestation, sealed; ``now`` is in epoch seconds.

    ``bot`` is the identity that the installation declares.

    ``scorecard`` is that of a conformance run of this installation, if there was one.
    """
    trials = {} if scorecard is None else trials_of(scorecard)
    audited = audit(log, now, bot)
    rows = verdicts(audited.findings, trials)
    runs = list(log.run_rows(audited.bounds))
    attestation = {
        "format": FORMAT,
        "contract": SPEC_VERSION,
        "bot": bot.user_agent,
        "attested_by": f"walsh-scrapy {own_version()}",
        "at": rfc3339(now),
        "holds": not any(row.breaks_a_must for row in rows),
        "checklist": [_row(row, bot) for row in rows],
        "versions": _grouped((row.id, json.loads(row.versions)) for row in runs),
        "settings": _grouped((row.id, _settings(row)) for row in runs),
        "conformance": None if scorecard is None else _conformance(scorecard),
        "record": _record(audited)
        | {
            "missing_copies": log.missing_copies(audited.bounds),
            "log_days": _settings(runs[-1])["log_days"] if runs else None,
        },
    }
    return attestation | {"seal": seal(attestation)}


@dataclass(frozen=True, slots=True)
class Audited:
    """What the audit of a record found, and the digests of what it judged."""

    bounds: Bounds
    findings: Findings
    digests: Digests


def audit(log: Log, now: float, bot: Bot = WALSH_RESEARCH) -> Audited:
    """Judge the whole record of a bot at ``now``, in epoch seconds.

    A few rows, the copies that were used last, and one small object for each run are in memory.
    """
    bounds = log.bounds(now)
    basis = log.basis(bounds)
    findings = Findings(basis.clocks)
    for _ in range(basis.clocks.set_back):
        findings.judge("45", lacking=CLOCK_SET_BACK)
    _audit_future(log, now, findings)
    _audit_hosts(log, bounds, findings, basis)
    return Audited(bounds, findings, _audit_times(log, bounds, findings, basis, bot))


def _audit_future(log: Log, now: float, findings: Findings) -> None:
    """Judge what is recorded for a moment that is further in the future than clocks differ."""
    for sent in log.requests_after(now + CLOCK_SKEW):
        breach = Breach(Kind.FUTURE, Case.of(sent, sent.url), since=sent.sent_at)
        findings.judge("1", [breach])
    for _ in range(log.entries_after(now + CLOCK_SKEW)):
        findings.judge("679", lacking="was first seen in the future")


def _audit_hosts(log: Log, bounds: Bounds, findings: Findings, basis: Basis) -> None:
    robots, frequency = RobotsAudit(findings, basis), FrequencyAudit(findings, basis)
    hosts = HostAudit(findings, basis, robots.fetches)
    for sent in log.requests_by_host(bounds):
        for each in (robots, hosts, frequency):
            each.see(sent)
    for denial in log.denials_by_host(bounds):
        robots.see_denial(denial)
    for each in (hosts, robots, frequency):
        each.end()


def _audit_times(log: Log, bounds: Bounds, findings: Findings, basis: Basis, bot: Bot) -> Digests:
    digester = Digester()
    identity, serial = IdentityAudit(findings, basis, bot), SerialAudit(findings, basis)
    listed, kept = BlocklistAudit(findings, basis), EntryAudit(findings, _problem)
    targets, first = TargetAudit(findings, basis), FirstRequestAudit(findings)
    for sent in digester.passed("requests", log.requests_by_time(bounds)):
        for each in (identity, serial, listed, targets, first):
            each.see(sent)
    for denial in digester.passed("denials", log.denials_by_time(bounds)):
        listed.see_denial(denial)
    for entry in digester.passed("entries", log.entries(bounds)):
        kept.see(entry)
    for key in log.duplicates(bounds):
        kept.see_duplicate(key)
    for run in log.reported(bounds):
        kept.see_reported(run)
    for audit in (listed, targets, first, kept):
        audit.end()
    take_all(digester, log, bounds)
    return digester.digests()


def _problem(item: Mapping[str, Any]) -> str:
    try:
        # An item of ours has these columns, so `check` need not find them, which takes most time.
        check(EntryItem(**item) if item.keys() == _COLUMNS else item)
    except InvalidItem as error:
        return str(error)
    return ""


def _conformance(scorecard: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was tried, and by which User-Agents the servers knew it."""
    tried = {name: scorecard[name] for name in ("command", "user_agents", "code")}
    return tried | {"sha256": seal(scorecard)}


def _settings(row: RunRow) -> dict[str, Any]:
    settings = json.loads(row.settings)
    return {name: settings.get(name) for name in _SETTINGS}


def _grouped(values: Iterable[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return each different value with its first and its last run, and how many runs had it."""
    groups: dict[str, dict[str, Any]] = {}
    for number, value in values:
        group = groups.setdefault(
            json.dumps(value, sort_keys=True),
            {"runs": 0, "first_run": number, "last_run": number, "values": value},
        )
        group["runs"] += 1
        group["last_run"] = number
    return sorted(groups.values(), key=lambda group: group["last_run"])


def _row(row: RowVerdict, bot: Bot) -> dict[str, Any]:
    return {
        "row": row.row.number,
        "rule": row.row.rule,
        "requirement": row.row.requirement.replace(UA_TOKEN, bot.ua_token),
        "level": row.row.level,
        "verdict": row.verdict.value,
        "shown": row.shown,
        "not_shown": dict(row.unshown),
        "not_applicable": row.waived,
        "broken": row.broken,
        "figures": dict(row.numbers),
        "findings": [_finding(kind, found) for kind, found in row.findings.items()],
        "conformance": None if row.trial is None else _trial(row.trial),
    }


def _finding(kind: Kind, found: Breaches) -> dict[str, Any]:
    case = found.worst
    return {
        "kind": kind.label,
        "level": kind.level,
        "what": kind.sentence,
        "count": found.count,
        "worst": {
            "table": case.table,
            "id": case.id,
            "at": rfc3339(case.at),
            "what": for_others(case.what),
        },
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "passed": trial.passed,
        "failed": list(trial.failed),
        "failed_should": list(trial.failed_should),
    }


def _record(audited: Audited) -> dict[str, Any]:
    return {
        "bounds": audited.bounds._asdict(),
        "digests": {
            table: {period: digest._asdict() for period, digest in periods.items()}
            for table, periods in audited.digests.items()
        },
    }


def attestation_text(attestation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an attestation."""
    yield f"{attestation['contract']}, judged {attestation['at']}"
    yield f"by {attestation['attested_by']}"
    yield from _group_lines("versions", attestation["versions"])
    yield from _group_lines("settings", attestation["settings"])
    if trial := attestation["conformance"]:
        yield f"conformance run of: {' '.join(trial['command'])}"
        yield from (_INDENT + name for name in trial["user_agents"])
    yield ""
    rows = attestation["checklist"]
    heads = columns([[row[name] for name in _CELLS] for row in rows])
    for row, head in zip(rows, heads, strict=True):
        yield head
        for line in _row_lines(row):
            yield _INDENT + line
    yield ""
    yield conclusion(attestation)


def conclusion(attestation: Mapping[str, Any]) -> str:
    """Return one line: how many rows hold, and whether any MUST is broken."""
    verdicts = [row["verdict"] for row in attestation["checklist"]]
    counts = ", ".join(
        f"{verdicts.count(verdict)} {word}"
        for verdict, word in (
            ("holds", "hold"),
            ("does not hold", "do not hold"),
            ("not shown", "are not shown"),
            ("not applicable", "do not apply"),
        )
        if verdict != "not applicable" or verdict in verdicts
    )
    end = "no MUST is broken" if attestation["holds"] else "a MUST is broken"
    return f"{len(verdicts)} rows: {counts}; {end}"


def _group_lines(name: str, groups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the values of the last runs, and how many other sets of values there were."""
    if not groups:
        yield f"{name}: no run is recorded"
        return
    last = groups[-1]
    others = count_of(len(groups) - 1, "other set", "other sets")
    runs = f"runs {last['first_run']} to {last['last_run']}"
    yield f"{name} of {runs} ({others} of values in earlier runs):"
    for key, value in last["values"].items():
        yield f"{_INDENT}{key} {value}"


def _row_lines(row: Mapping[str, Any]) -> Iterator[str]:
    figures = [
        f"{_FIGURES.get(name, name)}: {value}"
        for name, value in row["figures"].items()
        if isinstance(value, float) or value
    ]
    yield "; ".join([row["level"], f"shown: {row['shown']}", *figures])
    for reason, count in row["not_shown"].items():
        yield f"{count} not shown: {reason}"
    if row["not_applicable"]:
        yield f"not applicable: {row['not_applicable']}"
    for finding in row["findings"]:
        yield f"{finding['level']} broken {count_of(finding['count'], 'time')}: {finding['what']}"
        worst = finding["worst"]
        when = f" at {worst['at']}" if worst["at"] else ""
        yield f"  {worst['table']} {worst['id']}{when}: {worst['what']}"
    if trial := row["conformance"]:
        failed = [*trial["failed"], *trial["failed_should"]]
        said = f"; failed: {', '.join(failed)}" if failed else ""
        yield f"conformance: {trial['passed']} passed{said}"
