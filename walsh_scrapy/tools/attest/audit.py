"""The audit of a record: every row once by host, and once by time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.policy.audit.checklist import Findings
from walsh_scrapy.policy.audit.gates import BlocklistAudit, IdentityAudit, RobotsAudit
from walsh_scrapy.policy.audit.pauses import HostAudit, SerialAudit
from walsh_scrapy.policy.audit.visits import EntryAudit, FrequencyAudit
from walsh_scrapy.tools.attest.digests import by_day, by_month, with_small_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from walsh_scrapy.policy.audit.record import Basis
    from walsh_scrapy.state.log import Bounds, Log
    from walsh_scrapy.tools.attest.digests import Digests

_COLUMNS: Final = frozenset(column.name for column in fields(EntryItem))


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
