"""Rows 2 and 2a: the robots.txt of the time, judged again (R2, RFC 9309; decisions 7 and 12)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.audit.checklist import Kind
from walsh_scrapy.policy.audit.facts import DAY
from walsh_scrapy.policy.audit.findings import Case
from walsh_scrapy.policy.robots.access import LATENESS
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.facts import Documents, KeptBack, Run, Sent
    from walsh_scrapy.policy.audit.findings import Findings
    from walsh_scrapy.policy.robots import Rules

#: Seconds for which a copy counts: a day, and what a request may wait for its turn after that.
_LONGEST: Final = DAY + LATENESS


class RobotsAudit:
    """Judges each request by the copy of robots.txt that its record names.

    It is fastest if requests of one host come together, because they share copies.
    """

    def __init__(self, findings: Findings, documents: Documents) -> None:
        self._findings = findings
        self._documents = documents
        self._too_cautious = 0

    def see(self, sent: Sent, run: Run | None) -> float:
        """Judge one request; return the Crawl-delay of its copy in seconds, 0 if it has none."""
        if not sent.has_evidence:
            self._unshown("was written by an earlier version")
            return 0.0
        if sent.purpose == "robots":
            return 0.0
        if sent.robots_at is None:
            self._findings.judged["2"] += 1
            self._findings.add(Kind.NO_ROBOTS, _case(sent, f"{sent.url} names no robots.txt"))
            return 0.0
        rules = self._rules(sent.robots, run)
        if rules is None:
            return 0.0
        is_named = rules.group not in (None, "*")
        self._findings.judged["2"] += 1
        self._findings.judged["2a"] += is_named
        verdict = rules.verdict(sent.url)
        if not verdict.allowed:
            kind = Kind.DENIED_BY_NAME if is_named else Kind.DENIED
            what = f"{sent.url} is denied by line {verdict.line}: {verdict.rule!r}"
            self._findings.add(kind, _case(sent, what))
        age = sent.sent_at - sent.robots_at
        if age > _LONGEST and not _makes_wait(rules, sent.robots_at):
            what = f"the copy for {sent.url} was {format_seconds(age)} old"
            self._findings.add(Kind.OLD_ROBOTS, _case(sent, what), age)
        return rules.crawl_delay or 0.0

    def see_denial(self, denial: KeptBack, run: Run | None) -> None:
        """Judge one denial: that a copy allows what was denied is no breach, but is counted."""
        if denial.gate != "robots" or denial.robots is None or run is None:
            return
        rules = self._documents.rules(denial.robots, run.facts.ua_token)
        if rules is not None and rules.verdict(denial.url).allowed:
            self._too_cautious += 1

    def end(self) -> None:
        """Note the figures."""
        self._findings.note("2", denied_though_allowed=self._too_cautious)

    def _rules(self, name: str | None, run: Run | None) -> Rules | None:
        if run is None:
            self._unshown("names no run that is recorded")
            return None
        if name is None:
            self._unshown("had no copy: WALSH_ROBOTS_UNREACHABLE decided")
            return None
        rules = self._documents.rules(name, run.facts.ua_token)
        if rules is None:
            self._unshown("names a copy of robots.txt that is not kept")
        return rules

    def _unshown(self, reason: str) -> None:
        self._findings.unshown["2", reason] += 1


def _makes_wait(rules: Rules, at: float) -> bool:
    """Return True if the copy itself makes requests wait: it may outlive its day (decision 7)."""
    moment = datetime.fromtimestamp(at, UTC)
    return bool(rules.crawl_delay or rules.interval(moment)) or rules.opens(moment) > moment


def _case(sent: Sent, what: str) -> Case:
    return Case("requests", sent.id, sent.sent_at, what)
