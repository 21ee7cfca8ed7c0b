"""Rows 2 to 3c: the robots.txt and the blocklist of each request (R2, R3).

Each request is checked again by the copies that it names, and by the requests that brought them
(decisions 7, 12, 14 and 33). Where a rule of robots.txt or a listed domain decides, code that the
crawl does not share reads it too (decision 35). Times are epoch seconds, durations seconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.audit.checklist import Finding, Kind
from walsh_scrapy.policy.audit.clocks import TOLERANCE
from walsh_scrapy.policy.audit.record import (
    DAY,
    NO_COPY,
    NO_FETCH,
    NO_RUN,
    Check,
    LoggedRequest,
)
from walsh_scrapy.policy.backoff import is_good, is_redirect
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.policy.pacing import LONGEST_FOR_BLOCKLIST
from walsh_scrapy.policy.robots.copy import (
    ALLOW_ALL,
    LATENESS,
    LONGEST_SETTLING,
    PHASE_DEFERRED,
    PHASE_LAST_GOOD,
)
from walsh_scrapy.policy.urls import host_of, origin_of
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.audit.checklist import Findings
    from walsh_scrapy.policy.audit.record import Basis, ReadList, RunFacts, RunTerms
    from walsh_scrapy.policy.robots import Rules

#: Seconds for which a copy of robots.txt counts: a day, and the longest wait of a request for its
#: turn.
_LONGEST: Final = DAY + LATENESS
#: The doubt about a request without a copy, whose robots.txt may have failed for 30 days.
_NO_FILE: Final = "had no copy: WALSH_ROBOTS_UNREACHABLE decided by the time of the first failure"
#: The copy of a file that is not there.
_EMPTY: Final = sha256(ALLOW_ALL).hexdigest()
#: Seconds after which an origin without a request may have lost its copy.
_REMEMBERED: Final = 30 * DAY
_NO_LIST_OF_ITS_OWN: Final = "this bot has no blocklist (WALSH_BLOCKLIST_URL is empty)"
#: The doubt about a request that names a list.
_NO_LIST: Final = "names a blocklist that is not kept"


class _Origin:
    """The request log about the robots.txt of one scheme, host and port."""

    def __init__(self) -> None:
        self.fetches: dict[float, str | None] = {}  #: the copy after each, by its moment
        self.copies: set[str] = set()  #: all that were in force
        self.requested_at = -math.inf
        self.failed_at = -math.inf  #: when it last gave no file
        self.redirects = False  #: whether that was a redirect
        self.is_answered = False  #: whether the log has an answer of it
        self.failing_since: float | None = None  #: the first failure after the last answer

    def note_failure(self, sent: LoggedRequest, *, is_redirect: bool) -> None:
        """Note whether the file is unreachable since a request for it."""
        if is_redirect:  # the answer of its target is not known here
            self.is_answered, self.failing_since = False, None
        elif sent.robots_at is not None and not _is_failure(sent.robots_status):
            self.is_answered, self.failing_since = True, None
        elif self.is_answered and self.failing_since is None:
            self.failing_since = sent.requested_at


class RobotsFetches:
    """The requests for robots.txt of one host, by the origins that they were for.

    A request for robots.txt names the copy that counted after it, and when. The target of a
    redirect is the file of the origin that got the first request. Code that the crawl does not
    share reads the answers. Requests come host by host, and for each host in the order of their
    times.
    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._origins: defaultdict[str, _Origin] = defaultdict(_Origin)
        self._last: LoggedRequest | None = None
        self._origin = _Origin()  # of the last request

    def take(self, sent: LoggedRequest) -> Iterator[Finding]:
        """Take a request for robots.txt; yield a finding if its answer was not its copy."""
        if sent.redirected_from is not None or sent.is_open:
            return
        origin = self._of(sent)
        if sent.requested_at - origin.requested_at > _REMEMBERED:
            origin.copies.clear()
        origin.requested_at = sent.requested_at
        status = sent.status or 599
        is_refused = _is_failure(status)
        is_redirect = 300 <= status < 400 and status != 304
        if is_refused or is_redirect:
            origin.failed_at, origin.redirects = sent.requested_at, is_redirect
        origin.note_failure(sent, is_redirect=is_redirect)
        if sent.robots_at is None:
            return
        may_be = True  # a redirect leads to any copy
        if 400 <= status < 500 and not is_refused:
            may_be = sent.robots == _EMPTY
        elif (status == 304 or is_refused) and origin.copies:
            may_be = sent.robots in origin.copies
        if not may_be:
            what = f"{sent.url} answered {sent.status}, and another copy was in force after that"
            yield Finding.of(Kind.OTHER_COPY, sent, what, since=sent.requested_at)
        if sent.robots is not None:
            origin.copies.add(sent.robots)
        if -TOLERANCE <= sent.robots_at - sent.requested_at <= LONGEST_SETTLING + TOLERANCE:
            origin.fetches[sent.robots_at] = sent.robots

    def is_recorded(self, sent: LoggedRequest, requested_at: float) -> bool:
        """Return True if the request for the robots.txt that a request names is recorded."""
        origin = self._of(sent)
        return requested_at in origin.fetches or self._has_failed(origin, requested_at)

    def lacking(self, sent: LoggedRequest) -> str:
        """Return the doubt about the robots.txt that a request names; "" if there is none."""
        if sent.robots is not None and self._basis.rules(sent) is None:
            return NO_COPY
        at = sent.robots_at or 0.0
        is_known = at < self._basis.since or self.is_recorded(sent, at)
        return "" if is_known else NO_FETCH

    def findings(self, sent: LoggedRequest, requested_at: float) -> Iterator[Finding]:
        """Yield a finding if the logged request for robots.txt brought another copy."""
        origin, run = self._of(sent), self._basis.run(sent)
        is_phased = run is not None and run.facts.robots_unreachable == "phased"
        if sent.robots is None:  # WALSH_ROBOTS_UNREACHABLE decided
            is_that = is_phased or not origin.copies
        elif requested_at in origin.fetches:
            is_that = sent.robots == origin.fetches[requested_at]
        else:  # its last try was never sent
            is_that = origin.redirects or not origin.copies or sent.robots in origin.copies
        if not is_that:
            what = f"{sent.url} names another copy than its robots.txt was"
            yield Finding.of(Kind.OTHER_COPY, sent, what, since=requested_at)

    def too_early(self, sent: LoggedRequest) -> str:
        """Return why "phased" deferred a request that was sent; "" if it may not have (12).

        A first failure before the log began is not known, and nothing is found then.
        """
        if not _is_failure(sent.robots_status):
            return ""
        since = self._of(sent).failing_since
        failing_for = math.inf if since is None else sent.requested_at - since
        if sent.robots is None and sent.robots_status is None:
            return "its robots.txt got no answer, and there is no copy"
        phase = PHASE_LAST_GOOD if sent.robots is None else PHASE_DEFERRED
        if failing_for < phase - TOLERANCE:
            return f"its robots.txt was unreachable for {format_seconds(failing_for)} only"
        return ""

    @staticmethod
    def _has_failed(origin: _Origin, requested_at: float) -> bool:
        """Return True if a fetch that failed had tries before the moment at which it ended."""
        return 0.0 <= requested_at - origin.failed_at <= DAY

    def _of(self, sent: LoggedRequest) -> _Origin:
        if sent is not self._last:  # several checks read each
            if self._last is None or sent.host != self._last.host:
                self._origins.clear()
            self._last, self._origin = sent, self._origins[origin_of(sent.url)]
        return self._origin


class RobotsOfRequests(Check):
    """Checks each request by the copy of robots.txt that it names.

    The parser that let a request go cannot show its faults. So Protego reads the copy too, where
    both must agree (decision 35).
    """

    rows = LoggedRequest
    order = "host"

    def __init__(self, findings: Findings, basis: Basis) -> None:
        super().__init__(findings, basis)
        self.fetches = RobotsFetches(basis)
        # If runs differ in it, requests for one robots.txt stand under several hosts.
        self._is_paced_alike = len({run.facts.pace_by for run in basis.runs.values()}) < 2

    def see(self, sent: LoggedRequest) -> None:
        """Check one request."""
        if sent.purpose == "robots":
            self._findings.decide("", self.fetches.take(sent))
            return
        rules = self._basis.rules(sent)
        rows = ("2", "2a") if rules is not None and _is_named(rules) else ("2",)
        findings = self._findings_of(sent, rules)
        self._findings.decide(rows, findings, lacking=self._lacking(sent))

    def _findings_of(self, sent: LoggedRequest, rules: Rules | None) -> Iterator[Finding]:
        if sent.robots_at is None:
            yield Finding.of(Kind.NO_ROBOTS, sent, f"{sent.url} names no robots.txt")
            return
        age = sent.requested_at - sent.robots_at
        if age < -TOLERANCE:
            what = f"the robots.txt for {sent.url} was requested {format_seconds(-age)} later"
            yield Finding.of(Kind.LATER_ROBOTS, sent, what, -age, sent.robots_at)
        yield from self._origins(sent, sent.robots_at)
        if rules is not None:
            yield from self._denials(sent, rules)
        if rules is None:  # a copy that is not kept may have made it wait
            may_be_older = sent.robots is not None
        else:
            may_be_older = _makes_wait(rules, sent.robots_at)
        if age > _LONGEST and not may_be_older:
            what = f"the robots.txt for {sent.url} was {format_seconds(age)} old"
            yield Finding.of(Kind.OLD_ROBOTS, sent, what, age, sent.robots_at)

    def _denials(self, sent: LoggedRequest, rules: Rules) -> Iterator[Finding]:
        verdict, theirs = rules.verdict(sent.url), _second_reading(self._basis, sent)
        if theirs is not None:
            self._findings.count("2", compared_with_protego=1)
        if not verdict.allowed:
            kind = Kind.DENIED_BY_NAME if _is_named(rules) else Kind.DENIED
            what = f"{sent.url} is denied by line {verdict.line}: {verdict.rule!r}"
            yield Finding.of(kind, sent, what)
        elif theirs is False:
            what = f"Protego denies {sent.url}, by the copy {sent.robots}"
            yield Finding.of(Kind.DENIED_BY_PROTEGO, sent, what)

    def _origins(self, sent: LoggedRequest, requested_at: float) -> Iterator[Finding]:
        """Check the origin of the copy."""
        run = self._basis.run(sent)
        if self.fetches.is_recorded(sent, requested_at):
            yield from self.fetches.findings(sent, requested_at)
        elif requested_at < self._basis.since:
            self._findings.count("2", robots_of_before_the_record=1)
        elif self._is_paced_alike:
            what = f"no request for the robots.txt of {origin_of(sent.url)} brought that"
            yield Finding.of(
                Kind.UNASKED, sent, f"{sent.url} names a copy, and {what}", since=requested_at
            )
        policy = "" if run is None else run.facts.robots_unreachable
        if sent.robots is None and policy == "disallow":
            what = f"{sent.url} has no robots.txt, and WALSH_ROBOTS_UNREACHABLE denies it"
            yield Finding.of(Kind.DENIED, sent, what)
        elif policy == "phased" and (why := self.fetches.too_early(sent)):
            what = f"{sent.url} was to be deferred by WALSH_ROBOTS_UNREACHABLE: {why}"
            yield Finding.of(Kind.DENIED, sent, what)

    def _lacking(self, sent: LoggedRequest) -> str:
        run = self._basis.run(sent)
        if run is None:
            return NO_RUN
        if sent.robots is None:
            return "" if run.facts.robots_unreachable == "allow" else _NO_FILE
        return self.fetches.lacking(sent)


def _is_failure(status: int | None) -> bool:
    """Return True for the last answer of a robots.txt that is unreachable."""
    return status is None or status == 429 or status >= 500


def _second_reading(basis: Basis, row: LoggedRequest) -> bool | None:
    """Return whether Protego allows the URL of a row; None where it cannot be compared."""
    run = basis.run(row)
    if run is None or row.robots is None:
        return None
    reader, token = basis.documents.second_reader(row.robots), run.facts.ua_token
    if reader is None or not reader.can_compare(row.url, token):
        return None
    return reader.allows(row.url, token)


def _is_named(rules: Rules) -> bool:
    """Return True if a group that names the bot, and not that of all, is in force for it."""
    return rules.group not in (None, "*")


def _makes_wait(rules: Rules, at: float) -> bool:
    """Return True if the copy itself makes requests wait: it may outlive its day (decision 7)."""
    moment = datetime.fromtimestamp(at, UTC)
    return bool(rules.crawl_delay or rules.interval(moment)) or rules.opens(moment) > moment


class _Looks:
    """When each list was looked for: by requests for it, and for the robots.txt that it needs.

    Requests come in the order of their times. In doubt a run is right: a look that failed counts
    for the rest of its run, in which the host may be deferred. It counts for all runs of a day, for
    which the host may be on hold.
    """

    def __init__(self) -> None:
        # By the address of the list: the start of each look, as another worker may wait for its end
        # in vain, and until when it may count.
        self._found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._failed: set[int] = set()  # runs that last looked in vain

    def take(self, sent: LoggedRequest, facts: RunFacts) -> None:
        """Take a request for the list, or for the robots.txt that it needs."""
        status, number = sent.status, sent.run or 0
        is_schema = sent.url == facts.blocklist_schema_url != facts.blocklist_url
        is_answered = status is not None and (is_good(status) or is_redirect(status))
        if is_schema or (sent.purpose == "robots" and is_answered):
            return
        may_count = min(LONGEST_FOR_BLOCKLIST, max(sent.delay, sent.hold))
        if status is not None and (200 <= status < 300 or status == 304):
            self._failed.discard(number)
        elif not (status is not None and is_redirect(status)):
            self._failed.add(number)
            may_count = LONGEST_FOR_BLOCKLIST
        self._found[facts.blocklist_url].append(
            (sent.requested_at, sent.ended + may_count + LATENESS)
        )

    def has(self, url: str, at: float, number: int) -> bool:
        """Return True if the look that a run names, by its moment, is in the request log."""
        looks = reversed(self._found[url])
        return number in self._failed or any(
            begin <= at + TOLERANCE and at <= until for begin, until in looks
        )

    def may_be_older(self, url: str, at: float, since: float) -> bool:
        """Return True if the request log has no look before a moment of its first day."""
        return not self._found[url] and at < since + LONGEST_FOR_BLOCKLIST


class ListOfRequests(Check):
    """Checks each request by the list that it names, and by the moment of its look.

    One late request does not show that the middleware let it pass late: the machine may have been
    suspended. The second one does, and so does the first of a run that began when the list was due.
    """

    rows = LoggedRequest

    def __init__(self, findings: Findings, basis: Basis) -> None:
        super().__init__(findings, basis)
        # When a list was first named: by the address of the list, and by run.
        self._named_at: dict[str, float] = {}
        self._named_by: set[int] = set()
        self._lists: set[str] = set()
        self._looks = _Looks()
        self._requested_at: dict[int, float] = {}  # the last request of each run
        # By the address of the list: the one that was looked for last, after when that was.
        self._newest: dict[str, tuple[float, str]] = {}

    def see(self, sent: LoggedRequest) -> None:
        """Check one request."""
        run = self._basis.run(sent)
        if run is None:
            self._findings.decide("3", lacking=NO_RUN)
            return
        if run.facts.is_of_another_bot and not run.facts.blocklist_url:
            self._findings.waive(("3", "3a", "3b", "3c"), _NO_LIST_OF_ITS_OWN)
            return
        if self._basis.is_for_list(sent):
            self._looks.take(sent, run.facts)
        if not sent.gates.startswith("blocklist: "):
            self._check_order(sent)
            return
        findings = self._stale(sent, run)
        self._check_memory(sent, run)
        if sent.blocklist is None:
            self._findings.count("3", without_a_list_yet=1)
            self._findings.decide("3", findings)
            return
        listed = self._basis.documents.blocklist(sent.blocklist)
        if listed is None:
            self._findings.decide(("3", "3a", "3c"), lacking=_NO_LIST)
            return
        self._check_list(sent, sent.blocklist, listed)
        rows = ("3", "3a") if len(listed.entries) > 0 else ("3",)
        self._findings.decide(rows, chain(findings, _listed(sent, listed)))

    def end(self) -> None:
        """Note the number of lists."""
        self._findings.count("3", lists=len(self._lists))

    def _check_order(self, sent: LoggedRequest) -> None:
        if sent.purpose == "blocklist":
            return  # the list itself, or a hop of it, whose first robots.txt was requested before
        kind = Kind.ROBOTS_FIRST if "blocklist: " in sent.gates else Kind.NO_BLOCKLIST
        self._findings.decide("3", [Finding.of(kind, sent, f"{sent.url}: {sent.gates}")])

    def _check_memory(self, sent: LoggedRequest, run: RunTerms) -> None:
        """Find a request without a list, in a run that had one or began after one was in force."""
        url, number, findings = run.facts.blocklist_url, sent.run or 0, list[Finding]()
        if sent.blocklist is not None:
            self._named_at.setdefault(url, sent.requested_at)
            self._named_by.add(number)
        elif number in self._named_by or self._named_at.get(url, math.inf) < run.started_at:
            what = f"{sent.url} names no list, though one was in force before"
            since = self._named_at.get(url, sent.requested_at)
            findings.append(Finding.of(Kind.FORGOTTEN, sent, what, since=since))
        if url in self._named_at:
            self._findings.decide(("3b",), findings)

    def _stale(self, sent: LoggedRequest, run: RunTerms) -> list[Finding]:
        """Find a request by a list that was looked for too long ago, or never.

        The newest list counts for it then too.
        """
        url, number, at = run.facts.blocklist_url, sent.run or 0, sent.blocklist_at
        before = self._requested_at.get(number, run.started_at)
        self._requested_at[number] = sent.requested_at
        if not url or self._basis.is_for_list(sent):
            return []
        overdue = min(before, sent.requested_at) - (at or 0.0) - self._refresh(sent) - LATENESS
        if at is None or overdue > 0:
            late = "" if at is None else f" {format_seconds(overdue)} before"
            what = f"run {number} should have requested its list{late}"
        elif at < self._basis.since or self._looks.may_be_older(url, at, self._basis.since):
            self._findings.count("3", list_of_before_the_record=1)
            return []
        elif not self._looks.has(url, at, number):
            what = f"run {number} names a moment without a request for its list"
        else:
            if sent.blocklist is not None:
                self._newest[url] = max(self._newest.get(url, (at, "")), (at, sent.blocklist))
            return []
        since = sent.requested_at - max(0.0, overdue)
        findings = [Finding.of(Kind.STALE_LIST, sent, what, max(0.0, overdue), since)]
        newest = self._newest.get(url, (0.0, ""))[1]
        listed = self._basis.documents.blocklist(newest) if newest else None
        if listed is not None and newest != sent.blocklist:
            findings += (each._replace(since=since) for each in _listed(sent, listed))
        return findings

    def _refresh(self, sent: LoggedRequest) -> float:
        """Return the lifetime of the list of a request; infinite if it is not kept."""
        if sent.blocklist is None:
            return Blocklist.EMPTY.refresh.total_seconds()
        listed = self._basis.documents.blocklist(sent.blocklist)
        return math.inf if listed is None else listed.entries.refresh.total_seconds()

    def _check_list(self, sent: LoggedRequest, name: str, listed: ReadList) -> None:
        """Check a list when it is first named: an invalid one was in force."""
        if name in self._lists:
            return
        self._lists.add(name)
        invalid = Finding(Kind.INVALID_LIST, "copies", name, sent.requested_at, listed.error)
        self._findings.decide(("3c",), [invalid] if listed.error else ())


def _listed(sent: LoggedRequest, listed: ReadList) -> Iterator[Finding]:
    if domain := listed.domain_of(sent.url):
        kind = Kind.LISTED if domain == host_of(sent.url) else Kind.LISTED_ABOVE
        what = f"{sent.url} is under {domain}, which was listed"
        yield Finding.of(kind, sent, what)
