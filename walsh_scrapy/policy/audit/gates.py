"""Rows 1 to 3c: what the gates let through, judged again (R1, R2, R3; decisions 7, 12 and 14).

Each request is judged by the run, the robots.txt and the blocklist that its record names.
"""

from __future__ import annotations

import math
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.clocks import TOLERANCE
from walsh_scrapy.policy.audit.fetches import RobotsFetches
from walsh_scrapy.policy.audit.listage import ListAge
from walsh_scrapy.policy.audit.record import DAY, NO_COPY, NO_FETCH, NO_RUN
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.robots.access import LATENESS
from walsh_scrapy.policy.urls import host_of, origin_of
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.audit.checklist import Findings
    from walsh_scrapy.policy.audit.record import (
        Basis,
        Bot,
        LoggedDenial,
        LoggedRequest,
        RunFacts,
        RunTerms,
    )
    from walsh_scrapy.policy.blocklist import Blocklist
    from walsh_scrapy.policy.robots import Rules

#: Seconds for which a copy counts: a day, and what a request may wait for its turn after that.
_LONGEST: Final = DAY + LATENESS
#: Rows 2 and 3: what is not known of a request that names no copy, or one that is not kept.
_NO_FILE: Final = "had no copy: WALSH_ROBOTS_UNREACHABLE decided by the time of the first failure"
_NO_LIST_OF_ITS_OWN: Final = "this bot has no blocklist (WALSH_BLOCKLIST_URL is empty)"
_NO_LIST: Final = "names a blocklist that is not kept"


class IdentityAudit:
    """Compares the User-Agent of each request's run, which the download handler sets on the wire.

    It is evidence for the requests that were sent while the run went on. That of Walsh-Research is
    exact. Another bot is known by its product token, and may change what stands beside it.
    """

    def __init__(self, findings: Findings, basis: Basis, bot: Bot) -> None:
        self._findings = findings
        self._basis = basis
        self._bot = bot

    def see(self, sent: LoggedRequest) -> None:
        """Judge one request; requests may come in any order."""
        lacking = NO_RUN if sent.run is None else ""
        self._findings.judge("1", self._breaches(sent), lacking=lacking)

    def _breaches(self, sent: LoggedRequest) -> Iterator[Breach]:
        run = self._basis.run(sent)
        if run is None:
            if sent.run is not None:
                yield Breach(Kind.UNKNOWN_RUN, Case.of(sent, f"run {sent.run} is not recorded"))
            return
        if not self._is_of(run.facts):
            what = f"run {sent.run} sent {run.facts.user_agent!r}"
            yield Breach(Kind.USER_AGENT, Case.of(sent, what))
        ended = math.inf if run.ended is None else run.ended
        beyond = max(run.begun - sent.sent_at, sent.sent_at - ended)
        if beyond > CLOCK_SKEW:
            what = f"{sent.url} was sent {format_seconds(beyond)} outside of run {sent.run}"
            yield Breach(Kind.OUTSIDE_RUN, Case.of(sent, what), beyond, since=sent.sent_at)

    def _is_of(self, facts: RunFacts) -> bool:
        if self._bot.ua_token == UA_TOKEN:
            return facts.user_agent == self._bot.user_agent
        return facts.ua_token == self._bot.ua_token


class RobotsAudit:
    """Judges each request by the copy of robots.txt that its record names.

    Requests come host by host, and for each host in the order of their times. The parser that let
    a request go cannot show its own faults. So Protego reads the copy too, where both have to agree
    (decision 35).
    """

    def __init__(self, findings: Findings, basis: Basis) -> None:
        self._findings = findings
        self._basis = basis
        self.fetches = RobotsFetches(basis)
        # If runs differ in it, requests for one robots.txt stand under several hosts.
        self._is_paced_alike = len({run.facts.pace_by for run in basis.runs.values()}) < 2

    def see(self, sent: LoggedRequest) -> None:
        """Judge one request."""
        if sent.purpose == "robots":
            self._findings.judge("", self.fetches.take(sent))
            return
        rules = self._basis.rules(sent)
        rows = ("2", "2a") if rules is not None and _is_named(rules) else ("2",)
        breaches = self._breaches(sent, rules)
        self._findings.judge(rows, breaches, lacking=self._lacking(sent, rules))

    def take(self, sent: LoggedRequest) -> None:
        """Take one request that was judged before."""
        if sent.purpose == "robots":
            deque(self.fetches.take(sent), maxlen=0)

    def see_denial(self, denial: LoggedDenial) -> None:
        """Judge one denial: that a copy allows what was denied is no breach, but is counted."""
        rules = self._basis.rules(denial) if denial.gate == "robots" else None
        if rules is None:
            return
        is_allowed, theirs = rules.verdict(denial.url).allowed, self._second_reading(denial)
        self._findings.count("2", denied_though_allowed=int(is_allowed))
        self._findings.count("2", denied_though_protego_allows=int(theirs is True))

    def end(self) -> None:
        """Name the figures of which there may be none."""
        names = "compared_with_protego", "asked_before_the_record"
        denied = "denied_though_allowed", "denied_though_protego_allows"
        self._findings.count("2", **dict.fromkeys((*names, *denied), 0))

    def _breaches(self, sent: LoggedRequest, rules: Rules | None) -> Iterator[Breach]:
        if sent.robots_at is None:
            yield Breach(Kind.NO_ROBOTS, Case.of(sent, f"{sent.url} names no robots.txt"))
            return
        age = sent.sent_at - sent.robots_at
        if age < -TOLERANCE:
            what = f"the robots.txt for {sent.url} was asked for {format_seconds(-age)} later"
            yield Breach(Kind.LATER_ROBOTS, Case.of(sent, what), -age, sent.robots_at)
        yield from self._origins(sent, sent.robots_at)
        if rules is not None:
            yield from self._denials(sent, rules)
        if rules is None:  # a copy that is not kept may have made it wait
            may_be_older = sent.robots is not None
        else:
            may_be_older = _makes_wait(rules, sent.robots_at)
        if age > _LONGEST and not may_be_older:
            what = f"the robots.txt for {sent.url} was {format_seconds(age)} old"
            yield Breach(Kind.OLD_ROBOTS, Case.of(sent, what), age, sent.robots_at)

    def _denials(self, sent: LoggedRequest, rules: Rules) -> Iterator[Breach]:
        verdict, theirs = rules.verdict(sent.url), self._second_reading(sent)
        if theirs is not None:
            self._findings.count("2", compared_with_protego=1)
        if not verdict.allowed:
            kind = Kind.DENIED_BY_NAME if _is_named(rules) else Kind.DENIED
            what = f"{sent.url} is denied by line {verdict.line}: {verdict.rule!r}"
            yield Breach(kind, Case.of(sent, what))
        elif theirs is False:
            what = f"Protego denies {sent.url}, by the copy {sent.robots}"
            yield Breach(Kind.DENIED_BY_PROTEGO, Case.of(sent, what))

    def _second_reading(self, row: LoggedRequest | LoggedDenial) -> bool | None:
        """Return whether Protego allows the URL of a row; None where it cannot be compared."""
        run = self._basis.run(row)
        if run is None or row.robots is None:
            return None
        reader, token = self._basis.documents.second_reader(row.robots), run.facts.ua_token
        if reader is None or not reader.can_compare(row.url, token):
            return None
        return reader.allows(row.url, token)

    def _origins(self, sent: LoggedRequest, asked_at: float) -> Iterator[Breach]:
        """Judge where the copy comes from."""
        run = self._basis.run(sent)
        if self.fetches.is_recorded(sent, asked_at):
            yield from self.fetches.breaches(sent, asked_at)
        elif asked_at < self._basis.since:
            self._findings.count("2", asked_before_the_record=1)
        elif self._is_paced_alike:
            what = f"no request for the robots.txt of {origin_of(sent.url)} brought that"
            case = Case.of(sent, f"{sent.url} names a copy, and {what}")
            yield Breach(Kind.UNASKED, case, since=asked_at)
        if sent.robots is None and run is not None and run.facts.robots_unreachable == "disallow":
            what = f"{sent.url} has no robots.txt, and WALSH_ROBOTS_UNREACHABLE denies it"
            yield Breach(Kind.DENIED, Case.of(sent, what))

    def _lacking(self, sent: LoggedRequest, rules: Rules | None) -> str:
        run = self._basis.run(sent)
        if run is None:
            return NO_RUN
        if sent.robots is None:
            return "" if run.facts.robots_unreachable == "allow" else _NO_FILE
        if rules is None:
            return NO_COPY
        at = sent.robots_at or 0.0
        is_known = at < self._basis.since or self.fetches.is_recorded(sent, at)
        return "" if is_known else NO_FETCH


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
        self._age = ListAge(basis)

    def see(self, sent: LoggedRequest) -> None:
        """Judge one request."""
        run = self._basis.run(sent)
        if run is None:
            self._findings.judge("3", lacking=NO_RUN)
            return
        if _has_no_list(run):
            self._findings.waive(("3", "3a", "3b", "3c"), _NO_LIST_OF_ITS_OWN)
            return
        breaches = self._overdue(sent, run)
        if not sent.gates.startswith("blocklist: "):
            self._judge_order(sent)
            return
        self._judge_memory(sent, run)
        if sent.blocklist is None:
            self._findings.count("3", before_the_first_list=1)
            self._findings.judge("3", breaches)
            return
        listed = self._basis.documents.blocklist(sent.blocklist)
        if listed is None:
            self._findings.judge(("3", "3a", "3c"), lacking=_NO_LIST)
            return
        self._judge_list(sent)
        rows = ("3", "3a") if len(listed) > 0 else ("3",)
        self._findings.judge(rows, [*breaches, *_listed(sent, listed)])

    def take(self, sent: LoggedRequest) -> None:
        """Take one request that was judged before."""
        run = self._basis.run(sent)
        if run is None or _has_no_list(run):
            return
        self._age.overdue(sent, run)
        if sent.blocklist is None or not sent.gates.startswith("blocklist: "):
            return
        self._name(sent, run)
        is_new = sent.blocklist not in self._lists
        if is_new and self._basis.documents.blocklist(sent.blocklist) is not None:
            self._lists.add(sent.blocklist)

    def see_denial(self, denial: LoggedDenial) -> None:
        """Judge one denial: that the host was not listed is no breach, but is counted."""
        if denial.gate != "blocklist" or denial.blocklist is None:
            return
        listed = self._basis.documents.blocklist(denial.blocklist)
        if listed is None:
            return
        self._findings.count("3", denied_though_not_listed=int(listed.blocks(denial.url) is None))

    def end(self) -> None:
        """Note how many lists there were, and name the figures of which there may be none."""
        names = "before_the_first_list", "fetched_before_the_record", "denied_though_not_listed"
        self._findings.count("3", lists=len(self._lists), **dict.fromkeys(names, 0))

    def _judge_order(self, sent: LoggedRequest) -> None:
        if sent.purpose == "blocklist":
            return  # the list itself, or a hop of it, whose first robots.txt was asked for before
        kind = Kind.ROBOTS_FIRST if "blocklist: " in sent.gates else Kind.NO_BLOCKLIST
        self._findings.judge("3", [Breach(kind, Case.of(sent, f"{sent.url}: {sent.gates}"))])

    def _judge_memory(self, sent: LoggedRequest, run: RunTerms) -> None:
        """Find a request without a list, in a run that had one or began after one was in force."""
        url, number, breaches = run.facts.blocklist_url, sent.run or 0, list[Breach]()
        if sent.blocklist is not None:
            self._name(sent, run)
        elif number in self._named_by or self._named_at.get(url, math.inf) < run.begun:
            what = f"{sent.url} was judged by no list, though one was in force before"
            since = self._named_at.get(url, sent.sent_at)
            breaches.append(Breach(Kind.FORGOTTEN, Case.of(sent, what), since=since))
        if url in self._named_at:
            self._findings.judge(("3b",), breaches)

    def _name(self, sent: LoggedRequest, run: RunTerms) -> None:
        """Note that a request names a list."""
        self._named_at.setdefault(run.facts.blocklist_url, sent.sent_at)
        self._named_by.add(sent.run or 0)

    def _overdue(self, sent: LoggedRequest, run: RunTerms) -> list[Breach]:
        """Find a request by a list that was out of date, and what the list of another run says."""
        overdue = self._age.overdue(sent, run)
        if overdue is None:
            self._findings.count("3", fetched_before_the_record=1)
        if not overdue:
            return []
        what = f"run {sent.run} should have asked for its list {format_seconds(overdue)} before"
        since = sent.sent_at - overdue
        breaches = [Breach(Kind.STALE_LIST, Case.of(sent, what), overdue, since)]
        newest = self._age.newest.get(run.facts.blocklist_url)
        if newest is not None and newest != sent.blocklist:
            listed = self._basis.documents.blocklist(newest)
            found = _listed(sent, listed) if listed is not None else ()
            breaches += (each._replace(since=since) for each in found)
        return breaches

    def _judge_list(self, sent: LoggedRequest) -> None:
        """Judge a list when it is first named: one that is invalid was salvaged or is wrong."""
        name = sent.blocklist
        if name is None or name in self._lists:
            return
        self._lists.add(name)
        error = self._basis.documents.blocklist_error(name)
        case = Case("copies", name, sent.sent_at, error)
        self._findings.judge(("3c",), [Breach(Kind.INVALID_LIST, case)] if error else ())


def _has_no_list(run: RunTerms) -> bool:
    """Return True for another bot that has no blocklist (decision 24)."""
    return run.facts.is_of_another_bot and not run.facts.blocklist_url


def _is_named(rules: Rules) -> bool:
    """Return True if a group of its own, and not that of all, is in force for the bot."""
    return rules.group not in (None, "*")


def _listed(sent: LoggedRequest, listed: Blocklist) -> Iterator[Breach]:
    if entry := listed.blocks(sent.url):
        kind = Kind.LISTED if entry.domain == host_of(sent.url) else Kind.LISTED_ABOVE
        what = f"{sent.url} is under {entry.domain}, which was listed"
        yield Breach(kind, Case.of(sent, what))


def _makes_wait(rules: Rules, at: float) -> bool:
    """Return True if the copy itself makes requests wait: it may outlive its day (decision 7)."""
    moment = datetime.fromtimestamp(at, UTC)
    return bool(rules.crawl_delay or rules.interval(moment)) or rules.opens(moment) > moment
