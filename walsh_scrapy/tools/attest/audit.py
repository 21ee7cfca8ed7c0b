"""The audit of a record: every row once by host, and once by time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.policy.audit.blocklist import BlocklistAudit
from walsh_scrapy.policy.audit.entries import EntryAudit
from walsh_scrapy.policy.audit.findings import Findings
from walsh_scrapy.policy.audit.frequency import FrequencyAudit
from walsh_scrapy.policy.audit.identity import IdentityAudit
from walsh_scrapy.policy.audit.pacing import HostAudit, SerialAudit
from walsh_scrapy.policy.audit.robots import RobotsAudit
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.tools.attest.digests import by_day, by_month, with_small_tables
from walsh_scrapy.tools.attest.documents import KeptDocuments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from walsh_scrapy.policy.audit.facts import Run
    from walsh_scrapy.state.audit import AuditSnapshot, Bounds
    from walsh_scrapy.tools.attest.digests import Digests

_COLUMNS: Final = frozenset(column.name for column in fields(EntryItem))


@dataclass(frozen=True, slots=True)
class Audited:
    """What the audit of a record found, and the digests of what it judged."""

    bounds: Bounds
    findings: Findings
    digests: Digests


def audit(snapshot: AuditSnapshot, now: float) -> Audited:
    """Judge the whole record at ``now``, in epoch seconds.

    A few rows, the copies that were used last, and one small object for each run are in memory.
    """
    bounds = snapshot.bounds(now)
    findings, runs = Findings(), snapshot.runs(bounds)
    documents = KeptDocuments(snapshot.copy)
    _audit_hosts(snapshot, bounds, findings, runs, documents)
    digests = _audit_times(snapshot, bounds, findings, runs, documents)
    return Audited(bounds, findings, digests)


def _audit_hosts(
    snapshot: AuditSnapshot,
    bounds: Bounds,
    findings: Findings,
    runs: Mapping[int, Run],
    documents: KeptDocuments,
) -> None:
    hosts = HostAudit(findings, snapshot.acts(bounds), _list_hosts(snapshot, bounds, runs))
    robots, frequency = RobotsAudit(findings, documents), FrequencyAudit(findings)
    for sent in snapshot.requests_by_host(bounds):
        run = None if sent.run is None else runs.get(sent.run)
        hosts.see(sent, robots.see(sent, run))
        frequency.see(sent)
    for denial in snapshot.denials_by_host(bounds):
        robots.see_denial(denial, None if denial.run is None else runs.get(denial.run))
    for each in (hosts, robots, frequency):
        each.end()


def _audit_times(
    snapshot: AuditSnapshot,
    bounds: Bounds,
    findings: Findings,
    runs: Mapping[int, Run],
    documents: KeptDocuments,
) -> Digests:
    requests, denials, entries = by_day(), by_day(), by_month()
    identity, serial = IdentityAudit(findings, USER_AGENT), SerialAudit(findings)
    listed, kept = BlocklistAudit(findings, documents), EntryAudit(findings, _problem)
    for sent in requests.passed(snapshot.requests_by_time(bounds), moment=1):
        run = None if sent.run is None else runs.get(sent.run)
        identity.see(sent, run)
        serial.see(sent)
        listed.see(sent, run)
        kept.see_request(sent)
    for denial in denials.passed(snapshot.denials_by_time(bounds), moment=1):
        listed.see_denial(denial)
    for entry in entries.passed(snapshot.entries(bounds), moment=6):
        kept.see(entry)
    for key in snapshot.duplicates(bounds):
        kept.see_duplicate(key)
    for each in (listed, kept):
        each.end()
    return with_small_tables(snapshot, bounds, requests, denials, entries)


def _list_hosts(snapshot: AuditSnapshot, bounds: Bounds, runs: Mapping[int, Run]) -> frozenset[str]:
    facts = {run.facts for run in runs.values()}
    urls = {url for each in facts for url in (each.blocklist_url, each.blocklist_schema_url)}
    return snapshot.list_hosts(bounds) | {host_of(url) for url in urls if url}


def _problem(item: Mapping[str, Any]) -> str:
    try:
        # Of an item of ours the columns need not be found: that takes most of the time.
        check(EntryItem(**item) if item.keys() == _COLUMNS else item)
    except InvalidItem as error:
        return str(error)
    return ""
