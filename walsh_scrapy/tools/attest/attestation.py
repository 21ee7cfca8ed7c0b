"""An attestation as a JSON object, which `attestation.schema.json` describes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.identity import SPEC_VERSION
from walsh_scrapy.policy.audit.checklist import verdicts
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.wording import for_others
from walsh_scrapy.tools import own_version
from walsh_scrapy.tools.attest.audit import audit
from walsh_scrapy.tools.attest.digests import seal
from walsh_scrapy.tools.attest.trials import trials_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from walsh_scrapy.policy.audit.checklist import Finding, Kind, RowVerdict, Trial
    from walsh_scrapy.state.log import Bounds, Log, RunRow
    from walsh_scrapy.tools.attest.audit import Audited

#: The version of the JSON.
FORMAT: Final = "walsh-research-attestation/v1"
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


def _finding(kind: Kind, found: Finding) -> dict[str, Any]:
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
