"""The audit of the record: what was judged before is compared, and everything else is judged.

    judgements -> likely_same -> _by_time -> review -> _by_host -> Audited

`_by_time` makes the digests of all rows. Only if one of them shows that a period was changed, it is
repeated. Of a period that counts as it was judged nothing is counted, but its rows are seen: the
pauses, holds and redirects of a day begin in the days before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache, cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeVar

from walsh_scrapy.identity import UA_TOKEN, USER_AGENT
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.policy.audit.blocklists import BlocklistAudit
from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.clocks import CLOCK_SET_BACK
from walsh_scrapy.policy.audit.findings import Findings, Tally
from walsh_scrapy.policy.audit.judgements import (
    LOG,
    Judgement,
    Review,
    Terms,
    begin_of,
    day_of,
    end_of,
    is_over,
    likely_same,
    month_of,
    review,
)
from walsh_scrapy.policy.audit.pauses import HostAudit
from walsh_scrapy.policy.audit.record import DAY, Bot
from walsh_scrapy.policy.audit.robots import RobotsAudit
from walsh_scrapy.policy.audit.runs import (
    FirstRequestAudit,
    IdentityAudit,
    SerialAudit,
)
from walsh_scrapy.policy.audit.targets import TargetAudit
from walsh_scrapy.policy.audit.visits import EntryAudit, FrequencyAudit
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.tools import own_code
from walsh_scrapy.tools.attest.digests import Digester, take_all

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from walsh_scrapy.policy.audit.judgements import PeriodDigests
    from walsh_scrapy.policy.audit.record import Basis, LoggedDenial, LoggedRequest
    from walsh_scrapy.state.auditrecord import Bounds
    from walsh_scrapy.state.log import Log
    from walsh_scrapy.tools.attest.digests import Digests

_Row = TypeVar("_Row")
#: The bot of the contract.
WALSH_RESEARCH: Final = Bot(USER_AGENT, UA_TOKEN)
_COLUMNS: Final = frozenset(column.name for column in fields(EntryItem))


@dataclass(frozen=True)
class Audited:
    """What the audit of a record found, and the digests of what it judged."""

    at: float  #: epoch seconds
    bot: Bot
    bounds: Bounds
    findings: Findings
    digests: Digests
    before: tuple[Judgement, ...]  #: what was judged by earlier audits
    terms: Terms
    review: Review
    pruned_until: float  #: epoch seconds, before which rows may be deleted as too old

    @cached_property
    def periods(self) -> dict[str, PeriodDigests]:
        """The digests of the log by day, and of the entries by month."""
        return _by_period(self.digests)

    @property
    def judgements(self) -> list[Judgement]:
        """What is to be kept: each period that is over and was judged now."""
        changed = {each.period: each.changed_at for each in self.before if each.changed_at}
        changed |= {period: changed.get(period, self.at) for period in self._changed_days}
        new = (self.periods.keys() | self._changed_days) - self.review.same
        return [
            Judgement(
                period=period,
                terms=self.terms.of(period),
                digests=json.dumps(self.periods.get(period, {}), sort_keys=True),
                requests=self.bounds.requests,
                denials=self.bounds.denials,
                found=self.findings.parts.get(period, Tally()).to_json(),
                judged_at=self.at,
                changed_at=changed.get(period),
            )
            for period in sorted(new)
            if is_over(period, self.bounds.until)
        ]

    @property
    def outdated(self) -> list[str]:
        """The days that were judged before, and of which the last row was deleted as too old."""
        gone = (each.period for each in self.before if each.period not in self.periods)
        return [period for period in gone if begin_of(period) < self.pruned_until]

    @property
    def changed(self) -> dict[str, float]:
        """When it was noticed that a period was changed after it was judged, in epoch seconds."""
        known = {each.period: each.changed_at for each in self.before if each.changed_at}
        gone = set(self.outdated)
        known = {period: at for period, at in known.items() if period not in gone}
        return dict(sorted((dict.fromkeys(self.review.changed, self.at) | known).items()))

    @property
    def _changed_days(self) -> set[str]:
        """Entries are not in it: a source that is spelled anew changes the rows of its entries."""
        return {period for period in self.review.changed if period == day_of(begin_of(period))}


def audit(
    log: Log, now: float, bot: Bot = WALSH_RESEARCH, before: Collection[Judgement] = ()
) -> Audited:
    """Judge the whole record of a bot at ``now``, in epoch seconds.

    ``before`` is what earlier audits found. A few rows, the copies that were used last, and one
    small object for each run are in memory.
    """
    bounds = log.bounds(now)
    basis = log.basis(bounds)
    terms = Terms(_rules(), bot, basis)
    pruned_until = _pruned_until(log, bounds, now)

    def as_judged(judgement: Judgement) -> PeriodDigests:
        until = min(bounds.until, end_of(judgement.period))
        then = bounds._replace(until=until, requests=judgement.requests, denials=judgement.denials)
        since, digester = begin_of(judgement.period), Digester()
        digester.take("requests", log.requests_by_time(then, since))
        digester.take("denials", log.denials_by_time(then, since))
        return _by_period(digester.digests()).get(judgement.period, {})

    same = likely_same(before, terms.of)
    findings, digests = _by_time(log, bounds, basis, bot, _counted(before, same))
    found = review(
        before,
        _by_period(digests),
        terms.of,
        pruned_until=pruned_until,
        as_judged=as_judged,
    )
    if found.same != same:
        findings, digests = _by_time(log, bounds, basis, bot, _counted(before, found.same))
    _by_host(log, bounds, basis, findings, found.same)
    for _ in range(basis.clocks.set_back):
        findings.judge("45", lacking=CLOCK_SET_BACK)
    _audit_future(log, now, findings)
    earlier = tuple(before)
    return Audited(now, bot, bounds, findings, digests, earlier, terms, found, pruned_until)


@cache
def _rules() -> str:
    """Return the version of all by which this judge decides."""
    return f"{own_code()} {version('protego')}"


def _pruned_until(log: Log, bounds: Bounds, now: float) -> float:
    """Return the moment before which a run may have deleted rows, by its own WALSH_LOG_DAYS."""
    ends = {run.id: run.ended for run in log.run_ends(bounds)}
    kept = ((run, json.loads(run.settings).get("log_days")) for run in log.run_rows(bounds))
    return max((ends.get(run.id, now) - days * DAY for run, days in kept if days), default=0.0)


def _counted(before: Collection[Judgement], same: Collection[str]) -> dict[str, Tally]:
    """Return what was found in the periods that count as they were judged."""
    return {each.period: Tally.from_json(each.found) for each in before if each.period in same}


def _by_period(digests: Digests) -> dict[str, PeriodDigests]:
    """Return the digests of the log by day, and of the entries by month."""
    found: dict[str, PeriodDigests] = {}
    for table in (*LOG, "entries"):
        for period, digest in digests[table].items():
            found.setdefault(period, {})[table] = digest
    return found


def _audit_future(log: Log, now: float, findings: Findings) -> None:
    """Judge what is recorded for a moment that is further in the future than clocks differ."""
    for sent in log.requests_after(now + CLOCK_SKEW):
        breach = Breach(Kind.FUTURE, Case.of(sent, sent.url), since=sent.sent_at)
        findings.judge("1", [breach])
    for _ in range(log.entries_after(now + CLOCK_SKEW)):
        findings.judge("679", lacking="was first seen in the future")


def _by_host(
    log: Log, bounds: Bounds, basis: Basis, findings: Findings, same: Collection[str]
) -> None:
    robots, frequency = RobotsAudit(findings, basis), FrequencyAudit(findings, basis)
    hosts = HostAudit(findings, basis, robots.fetches)
    for period, sent in _turned(findings, log.requests_by_host(bounds), _day_sent):
        if period in same:  # nothing of it is counted, so its robots.txt need not be read
            robots.take(sent)
            hosts.take(sent)
        else:
            robots.see(sent)
            hosts.see(sent)
        frequency.see(sent)
    for period, denial in _turned(findings, log.denials_by_host(bounds), _day_denied):
        if period not in same:
            robots.see_denial(denial)
    findings.turn_to(None)
    hosts.end()


def _by_time(
    log: Log, bounds: Bounds, basis: Basis, bot: Bot, same: Mapping[str, Tally]
) -> tuple[Findings, Digests]:
    """Judge what comes by time, and return the findings with those of ``same`` in their parts."""
    findings, digester = Findings(clocks=basis.clocks, parts=dict(same)), Digester()
    listed, targets = BlocklistAudit(findings, basis), TargetAudit(findings, basis)
    first = FirstRequestAudit(findings)
    alone = IdentityAudit(findings, basis, bot), SerialAudit(findings, basis)
    requests = digester.passed("requests", log.requests_by_time(bounds))
    for _, sent in _turned(findings, requests, _day_sent):
        for each in (first, *alone, listed, targets):
            each.see(sent)
    denials = digester.passed("denials", log.denials_by_time(bounds))
    for period, denial in _turned(findings, denials, _day_denied):
        if period not in same:
            listed.see_denial(denial)
    findings.turn_to(None)
    listed.end()
    first.end()
    _audit_entries(log, bounds, findings, digester, same)
    take_all(digester, log, bounds)
    return findings, digester.digests()


def _audit_entries(
    log: Log, bounds: Bounds, findings: Findings, digester: Digester, same: Collection[str]
) -> None:
    kept = EntryAudit(findings, _problem)
    entries = digester.passed("entries", log.entries(bounds))
    for period, entry in _turned(findings, entries, lambda entry: month_of(entry.first_seen)):
        if period not in same:
            kept.see(entry)
    findings.turn_to(None)
    for key in log.duplicates(bounds):
        kept.see_duplicate(key)
    for run in log.reported(bounds):
        kept.see_reported(run)


def _turned(
    findings: Findings, rows: Iterable[_Row], period_of: Callable[[_Row], str]
) -> Iterator[tuple[str, _Row]]:
    """Yield each row with its period, to which the findings turn."""
    last = ""
    for row in rows:
        period = period_of(row)
        if period != last:
            last = period
            findings.turn_to(period)
        yield period, row


def _day_sent(sent: LoggedRequest) -> str:
    return day_of(sent.sent_at)


def _day_denied(denial: LoggedDenial) -> str:
    return day_of(denial.at)


def _problem(item: Mapping[str, Any]) -> str:
    try:
        # An item of ours has these columns, so `check` need not find them, which takes most time.
        check(EntryItem(**item) if item.keys() == _COLUMNS else item)
    except InvalidItem as error:
        return str(error)
    return ""
