"""The audit of the record: all requests in the order of their times, and then host by host."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from walsh_scrapy.identity import UA_TOKEN, USER_AGENT
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.policy.audit.blocklists import BlocklistAudit
from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.clocks import CLOCK_SET_BACK
from walsh_scrapy.policy.audit.findings import Findings
from walsh_scrapy.policy.audit.pauses import HostAudit
from walsh_scrapy.policy.audit.record import Bot
from walsh_scrapy.policy.audit.robots import RobotsAudit
from walsh_scrapy.policy.audit.runs import (
    FirstRequestAudit,
    IdentityAudit,
    SerialAudit,
)
from walsh_scrapy.policy.audit.targets import TargetAudit
from walsh_scrapy.policy.audit.visits import EntryAudit, FrequencyAudit
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.state.log import TimeSpan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from walsh_scrapy.policy.audit.record import Basis
    from walsh_scrapy.state.log import Log

_Row = TypeVar("_Row")
#: The bot of the contract.
WALSH_RESEARCH: Final = Bot(USER_AGENT, UA_TOKEN)


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
    counts = _by_time(log, bounds, basis, bot, findings)
    _by_host(log, bounds, basis, findings)
    for _ in range(basis.clocks.set_back):
        findings.judge("45", lacking=CLOCK_SET_BACK)
    _audit_future(log, now, findings)
    return Audited(now, bot, bounds, findings, counts)


def _audit_future(log: Log, now: float, findings: Findings) -> None:
    """Judge what is recorded for a moment that is further in the future than clocks differ."""
    future = TimeSpan(since=now + CLOCK_SKEW)
    for sent in log.requests_within(future):
        breach = Breach(Kind.FUTURE, Case.of(sent, sent.url), since=sent.sent_at)
        findings.judge("1", [breach])
    for _ in log.entries(future):
        findings.judge("679", lacking="was first seen in the future")


def _by_host(log: Log, bounds: TimeSpan, basis: Basis, findings: Findings) -> None:
    robots, frequency = RobotsAudit(findings, basis), FrequencyAudit(findings, basis)
    hosts = HostAudit(findings, basis, robots.fetches)
    for sent in log.requests_within(bounds, by_host=True):
        for each in (robots, hosts, frequency):
            each.see(sent)
    for denial in log.denials(bounds, by_host=True):
        robots.see_denial(denial)
    hosts.end()


def _by_time(
    log: Log, bounds: TimeSpan, basis: Basis, bot: Bot, findings: Findings
) -> Mapping[str, int]:
    """Judge what comes by time, and return how many rows of each table that was."""
    counts = Counter(requests=0, denials=0, entries=0)
    listed, first = BlocklistAudit(findings, basis), FirstRequestAudit(findings)
    judges = (
        first,
        IdentityAudit(findings, basis, bot),
        SerialAudit(findings, basis),
        listed,
        TargetAudit(findings, basis),
    )
    for sent in _counted(counts, "requests", log.requests_within(bounds)):
        for each in judges:
            each.see(sent)
    for denial in _counted(counts, "denials", log.denials(bounds)):
        listed.see_denial(denial)
    listed.end()
    first.end()
    kept = EntryAudit(findings, _problem)
    for entry in _counted(counts, "entries", log.entries(bounds)):
        kept.see(entry)
    for key in log.duplicates(bounds):
        kept.see_duplicate(key)
    for run in log.reported(bounds):
        kept.see_reported(run)
    return counts


def _counted(counts: Counter[str], table: str, rows: Iterable[_Row]) -> Iterator[_Row]:
    for row in rows:
        counts[table] += 1
        yield row


def _problem(item: Mapping[str, Any]) -> str:
    try:
        check(EntryItem.of_stored(item))
    except InvalidItem as error:
        return str(error)
    return ""
