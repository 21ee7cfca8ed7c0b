"""``walsh attest``: the audit of the state by the contract's checklist."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy import __version__
from walsh_scrapy.identity import SPEC_VERSION, UA_TOKEN, USER_AGENT
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.policy.audit.checklist import CHECKLIST, Finding, Findings, Kind
from walsh_scrapy.policy.audit.clocks import CLOCK_SET_BACK
from walsh_scrapy.policy.audit.pace import Frequency, HostPace, Serial
from walsh_scrapy.policy.audit.permission import ListOfRequests, RobotsOfRequests
from walsh_scrapy.policy.audit.record import Bot, EntryRow, LoggedDenial, LoggedRequest
from walsh_scrapy.policy.audit.targets import Duplicates, Entries, Identity, Reported, Targets
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.wording import count_of, for_others
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.show import align, print_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.policy.audit.checklist import Row
    from walsh_scrapy.policy.audit.record import Basis, Check
    from walsh_scrapy.state.log import Log
    from walsh_scrapy.state.runs import RunRecord
    from walsh_scrapy.tools.call import Call

#: The version of the JSON, which `attestation.schema.json` describes.
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
    "robots_ttl",
    "robots_unreachable",
    "max_retries",
    "backoff_base",
    "backoff_max",
    "min_revisit",
    "log_days",
    "signing_key",
)

_COUNTS: Final = {"run": "runs", "request": "requests", "denial": "denials", "entry": "entries"}
_CELLS: Final = ("row", "verdict", "requirement")
_INDENT: Final = " " * 6
#: The bot of the contract.
WALSH_RESEARCH: Final = Bot(USER_AGENT, UA_TOKEN)
#: The tables whose rows are checked and counted.
_TABLES: Final = {LoggedRequest: "requests", EntryRow: "entries"}


def run(call: Call) -> int:
    """Audit and print; return 1 if a MUST is broken. Raises CommandError for an empty state."""
    bot = Bot(call.options.user_agent, call.options.ua_token)
    with call.state() as state, state.log() as log:
        attestation = attest(log, state.now(), bot, call.arguments.since or 0.0)
    if not any(attestation["record"][name] for name in ("runs", "requests", "denials", "entries")):
        raise CommandError("the state is empty, so there is nothing to attest")
    if call.arguments.json:
        print(json.dumps(attestation, indent=1))
    else:
        print_lines(attestation_text(attestation))
    return 0 if attestation["holds"] else 1


def attest(log: Log, now: float, bot: Bot = WALSH_RESEARCH, since: float = 0.0) -> dict[str, Any]:
    """Audit the state of a bot at ``now``, in epoch seconds, and return the attestation.

    One loop brings the rows of the state to the checks (`walsh_scrapy.policy.audit`).

    With ``since`` the state counts as if it began then. A few rows, the copies that were used last,
    and one small object for each run are in memory.
    """
    bounds = log.bounds(now, since)
    basis = log.basis(bounds)
    findings = Findings(clocks=basis.clocks)
    counts = _run(log, bounds, _checks(findings, basis, bot))
    for _ in range(basis.clocks.set_back):
        findings.decide("45", lacking=CLOCK_SET_BACK)
    _audit_future(log, now, findings)
    runs = list(log.runs(bounds))
    return {
        "format": FORMAT,
        "contract": SPEC_VERSION,
        "bot": bot.user_agent,
        "attested_by": f"walsh-scrapy {__version__}",
        "at": rfc3339(now),
        "holds": not any(kind.level == "MUST" for kind in findings.found),
        "checklist": [_row(row, findings, bot) for row in CHECKLIST],
        "versions": _grouped((run.id, run.versions) for run in runs),
        "settings": _grouped((run.id, _settings(run)) for run in runs),
        "record": {
            "since": rfc3339(bounds.since) if bounds.since else None,
            "until": rfc3339(bounds.until),
            "runs": len(runs),
            **counts,
        },
    }


def _audit_future(log: Log, now: float, findings: Findings) -> None:
    """Find rows of a moment that is further in the future than clocks differ."""
    future = TimeSpan(since=now + CLOCK_SKEW)
    for sent in log.rows(LoggedRequest, future):
        finding = Finding.of(Kind.FUTURE, sent, sent.url, since=sent.requested_at)
        findings.decide("1", [finding])
    for _ in log.rows(EntryRow, future):
        findings.decide("679", lacking="was first seen in the future")


def _checks(findings: Findings, basis: Basis, bot: Bot) -> Sequence[Check]:
    """Return the checks; each row is seen by one after another."""
    robots = RobotsOfRequests(findings, basis)
    return (
        Identity(findings, basis, bot),
        Serial(findings, basis),
        ListOfRequests(findings, basis),
        robots,
        HostPace(findings, basis, robots.fetches),
        Frequency(findings, basis),
        Targets(findings, basis),
        Entries(findings, basis, _problem),
        Duplicates(findings, basis),
        Reported(findings, basis),
    )


def _run(log: Log, bounds: TimeSpan, checks: Sequence[Check]) -> Mapping[str, int]:
    """Bring each row to the checks that see it; return the number of rows of each table."""
    counts = dict.fromkeys(_TABLES.values(), 0)
    groups: dict[tuple[type, str], list[Check]] = {}
    for each in checks:
        groups.setdefault((each.rows, each.order), []).append(each)
    row: object
    for (rows, order), group in groups.items():
        number = 0
        for row in log.rows(rows, bounds, by_host=order == "host"):
            number += 1
            for each in group:
                each.see(row)
        if rows in _TABLES:
            counts[_TABLES[rows]] = number
    for each in checks:
        each.end()
    return counts | {"denials": sum(1 for _ in log.rows(LoggedDenial, bounds))}


def _problem(item: Mapping[str, Any]) -> str:
    try:
        check(EntryItem.of_stored(item))
    except InvalidItem as error:
        return str(error)
    return ""


def _settings(run: RunRecord) -> dict[str, Any]:
    return {name: run.settings.get(name) for name in _SETTINGS}


def _grouped(values: Iterable[tuple[int, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return each different value with its first and its last run, and the number of its runs."""
    groups: dict[str, dict[str, Any]] = {}
    for number, value in values:
        group = groups.setdefault(
            json.dumps(value, sort_keys=True),
            {"runs": 0, "first_run": number, "last_run": number, "values": value},
        )
        group["runs"] += 1
        group["last_run"] = number
    return sorted(groups.values(), key=lambda group: group["last_run"])


def _row(row: Row, findings: Findings, bot: Bot) -> dict[str, Any]:
    number, worst = row.number, findings.worst(row.number)
    return {
        "row": number,
        "rule": row.rule,
        "requirement": row.requirement.replace(UA_TOKEN, bot.ua_token),
        "level": row.level,
        "verdict": findings.verdict(number).value,
        "shown": findings.shown[number],
        "not_shown": findings.lacking(number),
        "not_applicable": findings.waived.get(number, ""),
        "broken": sum(findings.broken[each.kind] for each in worst),
        "figures": findings.figures(number),
        "findings": [_finding(each, findings.broken[each.kind]) for each in worst],
    }


def _finding(worst: Finding, count: int) -> dict[str, Any]:
    kind, what = worst.kind, for_others(worst.what)
    return {
        "kind": kind.label,
        "level": kind.level,
        "what": kind.sentence,
        "count": count,
        "worst": {"table": worst.table, "id": worst.id, "at": rfc3339(worst.at), "what": what},
    }


def attestation_text(attestation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an attestation."""
    yield f"{attestation['contract']}, audited {attestation['at']}"
    yield f"by {attestation['attested_by']}"
    yield from _group_lines("versions", attestation["versions"])
    yield from _group_lines("settings", attestation["settings"])
    yield ""
    rows = attestation["checklist"]
    heads = align([[row[name] for name in _CELLS] for row in rows])
    for row, head in zip(rows, heads, strict=True):
        yield head
        for line in _row_lines(row):
            yield _INDENT + line
    yield ""
    record = attestation["record"]
    counts = ", ".join(count_of(record[many], one, many) for one, many in _COUNTS.items())
    begin = f"since {record['since']}" if record["since"] else "from its start on"
    yield f"the state {begin}: {counts}"
    if record["until"] != attestation["at"]:
        yield f"not audited yet: rows since {record['until']}, because a run may go on"
    yield _conclusion(attestation)


def _conclusion(attestation: Mapping[str, Any]) -> str:
    """Return one line: the number of rows that hold, and whether any MUST is broken."""
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
    """Yield the values of the last runs, and the number of other sets of values."""
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
        f"{name.replace('_', ' ')}: {value}"
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
