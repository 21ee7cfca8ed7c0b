"""The audit of a record and its result, a JSON object that `attestation.schema.json` describes."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.identity import SPEC_VERSION, USER_AGENT
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.policy.audit.checklist import CHECKLIST, Findings, Trial, verdicts
from walsh_scrapy.policy.audit.gates import BlocklistAudit, IdentityAudit, RobotsAudit
from walsh_scrapy.policy.audit.pauses import HostAudit, SerialAudit
from walsh_scrapy.policy.audit.visits import EntryAudit, FrequencyAudit
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.wording import for_others
from walsh_scrapy.tools import own_version
from walsh_scrapy.tools.attest.digests import FORMAT, by_day, by_month, seal, with_small_tables
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from walsh_scrapy.policy.audit.checklist import Breaches, Kind, RowVerdict
    from walsh_scrapy.policy.audit.record import Basis
    from walsh_scrapy.state.auditrecord import Bounds, RunRow
    from walsh_scrapy.state.log import Log
    from walsh_scrapy.tools.attest.digests import Digests

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
#: The version of the JSON of a conformance run.
_SCORECARD: Final = "walsh-research-conformance/v1"
#: Scenarios about a row of their own. All others count for the first row of their rule.
_ROW_OF: Final = {
    "named-group-denies": "2a",
    "named-group-exempts": "2a",
    "opted-out-subdomain": "3a",
    "list-retained": "3b",
}
_FIRST: Final = {row.rule: row.number for row in reversed(CHECKLIST)}


def attest(log: Log, now: float, scorecard: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Judge the record, and return the attestation; ``now`` is in epoch seconds.

    ``scorecard`` is that of a conformance run of this installation, if there was one.
    """
    trials = {} if scorecard is None else trials_of(scorecard)
    audited = audit(log, now)
    rows = verdicts(audited.findings, trials)
    runs = list(_runs(log, audited.bounds))
    attestation = {
        "format": FORMAT,
        "contract": SPEC_VERSION,
        "attested_by": f"walsh-scrapy {own_version()}",
        "at": rfc3339(now),
        "holds": not any(row.breaks_a_must for row in rows),
        "checklist": [_row(row) for row in rows],
        "versions": _grouped((number, versions) for number, versions, _ in runs),
        "settings": _grouped((number, settings) for number, _, settings in runs),
        "conformance": None if scorecard is None else _conformance(scorecard),
        "record": _record(audited),
    }
    return attestation | {"seal": seal(attestation)}


@dataclass(frozen=True, slots=True)
class Audited:
    """What the audit of a record found, and the digests of what it judged."""

    bounds: Bounds
    findings: Findings
    digests: Digests


def audit(log: Log, now: float) -> Audited:
    """Judge the whole record at ``now``, in epoch seconds.

    A few rows, the copies that were used last, and one small object for each run are in memory.
    """
    bounds, findings = log.bounds(now), Findings()
    basis = log.basis(bounds)
    _audit_hosts(log, bounds, findings, basis)
    return Audited(bounds, findings, _audit_times(log, bounds, findings, basis))


def _audit_hosts(log: Log, bounds: Bounds, findings: Findings, basis: Basis) -> None:
    hosts, frequency = HostAudit(findings, basis), FrequencyAudit(findings)
    robots = RobotsAudit(findings, basis)
    for sent in log.requests_by_host(bounds):
        for each in (robots, hosts, frequency):
            each.see(sent)
    for denial in log.denials_by_host(bounds):
        robots.see_denial(denial)
    for each in (hosts, robots, frequency):
        each.end()


def _audit_times(log: Log, bounds: Bounds, findings: Findings, basis: Basis) -> Digests:
    requests, denials, entries = by_day(), by_day(), by_month()
    identity, serial = IdentityAudit(findings, basis, USER_AGENT), SerialAudit(findings)
    listed, kept = BlocklistAudit(findings, basis), EntryAudit(findings, _problem)
    for sent in requests.passed(log.requests_by_time(bounds), moment=1):
        identity.see(sent)
        serial.see(sent)
        listed.see(sent)
        kept.see_request(sent)
    for denial in denials.passed(log.denials_by_time(bounds), moment=1):
        listed.see_denial(denial)
    for entry in entries.passed(log.entries(bounds), moment=6):
        kept.see(entry)
    for key in log.duplicates(bounds):
        kept.see_duplicate(key)
    for each in (listed, kept):
        each.end()
    return with_small_tables(log, bounds, requests, denials, entries)


def _problem(item: Mapping[str, Any]) -> str:
    try:
        # Of an item of ours the columns need not be found: that takes most of the time.
        check(EntryItem(**item) if item.keys() == _COLUMNS else item)
    except InvalidItem as error:
        return str(error)
    return ""


def read_scorecard(name: str) -> dict[str, Any]:
    """Read a scorecard. Raises CommandError for a file that is none."""
    try:
        scorecard = json.loads(Path(name).read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{name} is no JSON: {error}") from error
    wanted = {"command", "user_agents", "results"}
    is_one = isinstance(scorecard, dict) and scorecard.get("format") == _SCORECARD
    if not is_one or wanted - scorecard.keys():
        raise CommandError(f"{name} is no scorecard of `scrapy conformance --json` ({_SCORECARD})")
    return dict(scorecard)


def trials_of(scorecard: Mapping[str, Any]) -> dict[str, Trial]:
    """Return what a scorecard says of each row. Raises CommandError if it lacks its results."""
    by_row: dict[str, list[Mapping[str, str]]] = {}
    try:
        for result in scorecard["results"]:
            row = _ROW_OF.get(result["scenario"], _FIRST[result["rule"]])
            given = {name: result[name] for name in ("scenario", "level", "verdict")}
            by_row.setdefault(row, []).append(given)
    except (KeyError, TypeError) as error:
        raise CommandError(f"the scorecard lacks {error}") from error
    return {row: _tried(results) for row, results in by_row.items()}


def _tried(results: list[Mapping[str, str]]) -> Trial:
    def failed(level: str) -> tuple[str, ...]:
        found = (each for each in results if each["verdict"] == "fail" and each["level"] == level)
        return tuple(each["scenario"] for each in found)

    passed = sum(each["verdict"] == "pass" for each in results)
    return Trial(passed, failed("MUST"), failed("SHOULD"))


def _conformance(scorecard: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was tried, and by which User-Agents the servers knew it."""
    return {
        "command": scorecard["command"],
        "user_agents": scorecard["user_agents"],
        "sha256": seal(scorecard),
    }


def _runs(log: Log, bounds: Bounds) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    for row in log.run_rows(bounds):
        yield row.id, json.loads(row.versions), _settings(row)


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


def _row(row: RowVerdict) -> dict[str, Any]:
    return {
        "row": row.row.number,
        "rule": row.row.rule,
        "requirement": row.row.requirement,
        "level": row.row.level,
        "verdict": row.verdict.value,
        "judged": row.judged,
        "not_shown": dict(row.unshown),
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
