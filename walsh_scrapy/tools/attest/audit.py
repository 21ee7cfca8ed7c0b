"""The audit of the record: one loop brings its rows to the checks (`walsh_scrapy.policy.audit`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.identity import UA_TOKEN, USER_AGENT
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.policy.audit.checklist import Breach, Case, Findings, Kind
from walsh_scrapy.policy.audit.clocks import CLOCK_SET_BACK
from walsh_scrapy.policy.audit.pace import Frequency, HostPace, Serial
from walsh_scrapy.policy.audit.permission import (
    ListOfDenials,
    ListOfRequests,
    RobotsOfDenials,
    RobotsOfRequests,
)
from walsh_scrapy.policy.audit.record import Bot, EntryRow, LoggedDenial, LoggedRequest
from walsh_scrapy.policy.audit.targets import Duplicates, Entries, Identity, Reported, Targets
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.state.log import TimeSpan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from walsh_scrapy.policy.audit.record import Basis, Check
    from walsh_scrapy.state.log import Log

#: The bot of the contract.
WALSH_RESEARCH: Final = Bot(USER_AGENT, UA_TOKEN)
#: The tables whose rows are counted.
_TABLES: Final = {LoggedRequest: "requests", LoggedDenial: "denials", EntryRow: "entries"}


@dataclass(frozen=True, slots=True)
class Audited:
    """What the audit of a record found."""

    at: float  #: epoch seconds
    bot: Bot
    bounds: TimeSpan
    findings: Findings
    counts: Mapping[str, int]  #: the rows that were judged, by table


def audit(log: Log, now: float, bot: Bot = WALSH_RESEARCH, since: float = 0.0) -> Audited:
    """Judge the record of a bot at ``now``, in epoch seconds.

    With ``since`` it is judged as if the record began then. A few rows, the copies that were used
    last, and one small object for each run are in memory.
    """
    bounds = log.bounds(now, since)
    basis = log.basis(bounds)
    findings = Findings(clocks=basis.clocks)
    counts = _run(log, bounds, _checks(findings, basis, bot))
    for _ in range(basis.clocks.set_back):
        findings.judge("45", lacking=CLOCK_SET_BACK)
    _audit_future(log, now, findings)
    return Audited(now, bot, bounds, findings, counts)


def _audit_future(log: Log, now: float, findings: Findings) -> None:
    """Judge what is recorded for a moment that is further in the future than clocks differ."""
    future = TimeSpan(since=now + CLOCK_SKEW)
    for sent in log.rows(LoggedRequest, future):
        breach = Breach(Kind.FUTURE, Case.of(sent, sent.url), since=sent.sent_at)
        findings.judge("1", [breach])
    for _ in log.rows(EntryRow, future):
        findings.judge("679", lacking="was first seen in the future")


def _checks(findings: Findings, basis: Basis, bot: Bot) -> Sequence[Check]:
    """Return the checks; each row is seen by one after another."""
    robots = RobotsOfRequests(findings, basis)
    return (
        Identity(findings, basis, bot),
        Serial(findings, basis),
        ListOfRequests(findings, basis),
        ListOfDenials(findings, basis),
        robots,
        RobotsOfDenials(findings, basis),
        HostPace(findings, basis, robots.fetches),
        Frequency(findings, basis),
        Targets(findings, basis),
        Entries(findings, basis, _problem),
        Duplicates(findings, basis),
        Reported(findings, basis),
    )


def _run(log: Log, bounds: TimeSpan, checks: Sequence[Check]) -> Mapping[str, int]:
    """Bring each row to the checks that see it; return how many rows of each table there were."""
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
    return counts


def _problem(item: Mapping[str, Any]) -> str:
    try:
        check(EntryItem.of_stored(item))
    except InvalidItem as error:
        return str(error)
    return ""
