"""Rows 1 to 3c: what the gates let through, judged again (R1, R2, R3; decisions 7, 12 and 14).

Each request is judged by the run, the robots.txt and the blocklist that its record names.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.audit.checklist import Case, Kind
from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.policy.robots.access import LATENESS
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.checklist import Findings
    from walsh_scrapy.policy.audit.record import Basis, LoggedDenial, LoggedRequest, RunTerms
    from walsh_scrapy.policy.robots import Rules

#: Seconds for which a copy counts: a day, and what a request may wait for its turn after that.
_LONGEST: Final = DAY + LATENESS
_NO_RUN: Final = "names no run that is recorded"


class IdentityAudit:
    """Compares the User-Agent of each request's run, which the download handler sets on the wire.

    ``wanted`` is the contract's User-Agent.
    """

    def __init__(self, findings: Findings, basis: Basis, wanted: str) -> None:
        self._findings = findings
        self._basis = basis
        self._wanted = wanted

    def see(self, sent: LoggedRequest) -> None:
        """Judge one request; requests may come in any order."""
        run = self._basis.run(sent)
        if run is None:
            self._findings.unshown["1", _NO_RUN] += 1
            return
        self._findings.judged["1"] += 1
        if run.facts.user_agent != self._wanted:
            what = f"run {sent.run} sent {run.facts.user_agent!r}"
            self._findings.add(Kind.USER_AGENT, Case.of(sent, what))


class RobotsAudit:
    """Judges each request by the copy of robots.txt that its record names.

    It is fastest if requests of one host come together, because they share copies.
    """

    def __init__(self, findings: Findings, basis: Basis) -> None:
        self._findings = findings
        self._basis = basis
        self._too_cautious = 0

    def see(self, sent: LoggedRequest) -> None:
        """Judge one request."""
        if sent.purpose == "robots":
            return
        if sent.robots_at is None:
            self._findings.judged["2"] += 1
            self._findings.add(Kind.NO_ROBOTS, Case.of(sent, f"{sent.url} names no robots.txt"))
            return
        rules = self._rules(sent)
        if rules is None:
            return
        is_named = rules.group not in (None, "*")
        self._findings.judged["2"] += 1
        self._findings.judged["2a"] += is_named
        verdict = rules.verdict(sent.url)
        if not verdict.allowed:
            kind = Kind.DENIED_BY_NAME if is_named else Kind.DENIED
            what = f"{sent.url} is denied by line {verdict.line}: {verdict.rule!r}"
            self._findings.add(kind, Case.of(sent, what))
        age = sent.sent_at - sent.robots_at
        if age > _LONGEST and not _makes_wait(rules, sent.robots_at):
            what = f"the copy for {sent.url} was {format_seconds(age)} old"
            self._findings.add(Kind.OLD_ROBOTS, Case.of(sent, what), age)

    def see_denial(self, denial: LoggedDenial) -> None:
        """Judge one denial: that a copy allows what was denied is no breach, but is counted."""
        rules = self._basis.rules(denial) if denial.gate == "robots" else None
        if rules is not None and rules.verdict(denial.url).allowed:
            self._too_cautious += 1

    def end(self) -> None:
        """Note the figures."""
        self._findings.note("2", denied_though_allowed=self._too_cautious)

    def _rules(self, sent: LoggedRequest) -> Rules | None:
        rules = self._basis.rules(sent)
        if rules is None:
            reason = "names a copy of robots.txt that is not kept"
            if self._basis.run(sent) is None:
                reason = _NO_RUN
            elif sent.robots is None:
                reason = "had no copy: WALSH_ROBOTS_UNREACHABLE decided"
            self._findings.unshown["2", reason] += 1
        return rules


class BlocklistAudit:
    """Judges each request by the list that its record names.

    Requests come in the order of their times, so that few lists are in use at once.
    """

    def __init__(self, findings: Findings, basis: Basis) -> None:
        self._findings = findings
        self._basis = basis
        # When a list was first named: by the address of the list, and by run.
        self._named_at: dict[str, float] = {}
        self._named_by: set[int] = set()
        self._lists: set[str] = set()
        self._without = self._too_cautious = 0

    def see(self, sent: LoggedRequest) -> None:
        """Judge one request."""
        run = self._basis.run(sent)
        if run is None:
            self._unshown(_NO_RUN)
            return
        if not sent.gates.startswith("blocklist: "):
            self._judge_order(sent)
            return
        self._findings.judged["3"] += 1
        self._judge_memory(sent, run)
        if sent.blocklist is None:
            self._without += 1
            return
        listed = self._basis.documents.blocklist(sent.blocklist)
        if listed is None:
            self._unshown("names a blocklist that is not kept")
            return
        self._judge_list(sent)
        self._findings.judged["3a"] += len(listed) > 0
        if entry := listed.blocks(sent.url):
            is_itself = entry.domain == host_of(sent.url)
            kind = Kind.LISTED if is_itself else Kind.LISTED_ABOVE
            what = f"{sent.url} is under {entry.domain}, which was listed"
            self._findings.add(kind, Case.of(sent, what))

    def see_denial(self, denial: LoggedDenial) -> None:
        """Judge one denial: that the host was not listed is no breach, but is counted."""
        if denial.gate != "blocklist" or denial.blocklist is None:
            return
        listed = self._basis.documents.blocklist(denial.blocklist)
        if listed is None:
            return
        self._too_cautious += listed.blocks(denial.url) is None

    def end(self) -> None:
        """Note the figures."""
        figures = {
            "lists": len(self._lists),
            "before_the_first_list": self._without,
            "denied_though_not_listed": self._too_cautious,
        }
        self._findings.note("3", **figures)

    def _judge_order(self, sent: LoggedRequest) -> None:
        if sent.purpose == "blocklist":
            return  # the list itself, or a hop of it, whose first robots.txt was asked for before
        self._findings.judged["3"] += 1
        if "blocklist: " in sent.gates:
            self._findings.add(Kind.ROBOTS_FIRST, Case.of(sent, f"{sent.url}: {sent.gates}"))
        else:
            self._findings.add(Kind.NO_BLOCKLIST, Case.of(sent, f"{sent.url}: {sent.gates}"))

    def _judge_memory(self, sent: LoggedRequest, run: RunTerms) -> None:
        """Find a request without a list, in a run that had one or began after one was in force."""
        url, number = run.facts.blocklist_url, sent.run or 0
        if sent.blocklist is not None:
            self._named_at.setdefault(url, sent.sent_at)
            self._named_by.add(number)
        elif number in self._named_by or self._named_at.get(url, math.inf) < run.begun:
            what = f"{sent.url} was judged by no list, though one was in force before"
            self._findings.add(Kind.FORGOTTEN, Case.of(sent, what))
        self._findings.judged["3b"] += url in self._named_at

    def _judge_list(self, sent: LoggedRequest) -> None:
        """Judge a list when it is first named: one that is invalid was salvaged or is wrong."""
        name = sent.blocklist
        if name is None or name in self._lists:
            return
        self._lists.add(name)
        self._findings.judged["3c"] += 1
        if error := self._basis.documents.blocklist_error(name):
            self._findings.add(Kind.INVALID_LIST, Case("copies", name, sent.sent_at, error))

    def _unshown(self, reason: str) -> None:
        self._findings.unshown["3", reason] += 1


def _makes_wait(rules: Rules, at: float) -> bool:
    """Return True if the copy itself makes requests wait: it may outlive its day (decision 7)."""
    moment = datetime.fromtimestamp(at, UTC)
    return bool(rules.crawl_delay or rules.interval(moment)) or rules.opens(moment) > moment
