"""Row 2: the robots.txt of the time, judged again (R2; decisions 7 and 12).

Each request is judged by the copy that its record names, and by the request that brought it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.clocks import TOLERANCE
from walsh_scrapy.policy.audit.record import DAY, NO_COPY, NO_FETCH, NO_RUN
from walsh_scrapy.policy.robots.copy import ALLOW_ALL, LATENESS, LONGEST_SETTLING
from walsh_scrapy.policy.urls import origin_of
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.audit.findings import Findings
    from walsh_scrapy.policy.audit.record import Basis, LoggedDenial, LoggedRequest
    from walsh_scrapy.policy.robots import Rules

#: Seconds for which a copy counts: a day, and what a request may wait for its turn after that.
_LONGEST: Final = DAY + LATENESS
#: What is not known of a request that names no copy.
_NO_FILE: Final = "had no copy: WALSH_ROBOTS_UNREACHABLE decided by the time of the first failure"
#: The copy of a file that is not there.
_EMPTY: Final = sha256(ALLOW_ALL).hexdigest()
#: Seconds after which an origin that was not asked may have lost its copy.
_REMEMBERED: Final = 30 * DAY


class _Origin:
    """What the record says of the robots.txt of one scheme, host and port."""

    def __init__(self) -> None:
        self.fetches: dict[float, str | None] = {}  #: the copy after each, by its moment
        self.copies: set[str] = set()  #: all that were in force
        self.asked_at = -math.inf
        self.failed_at = -math.inf  #: when it last gave no file of its own
        self.redirects = False  #: whether that was a redirect


class RobotsFetches:
    """The requests for robots.txt of one host, by the origins that they were for.

    A request for robots.txt names the copy that counted after it, and when. What a redirect led to
    is the file of the origin that was asked first. What an answer may lead to is read by other code
    than that of the crawl. Requests come host by host, and for each host
    in the order of their times.
    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._origins: defaultdict[str, _Origin] = defaultdict(_Origin)
        self._last: LoggedRequest | None = None
        self._origin = _Origin()  # of the last request

    def take(self, sent: LoggedRequest) -> Iterator[Breach]:
        """Take a request for robots.txt; yield a breach if its answer was not the copy it names."""
        if sent.redirected_by is not None or sent.is_open:
            return
        origin = self._of(sent)
        if sent.sent_at - origin.asked_at > _REMEMBERED:
            origin.copies.clear()
        origin.asked_at = sent.sent_at
        status = sent.status or 599
        is_refused = status == 429 or status >= 500
        is_redirect = 300 <= status < 400 and status != 304
        if is_refused or is_redirect:
            origin.failed_at, origin.redirects = sent.sent_at, is_redirect
        if sent.robots_at is None:
            return
        may_be = True  # a redirect leads to any copy
        if 400 <= status < 500 and not is_refused:
            may_be = sent.robots == _EMPTY
        elif (status == 304 or is_refused) and origin.copies:
            may_be = sent.robots in origin.copies
        if not may_be:
            what = f"{sent.url} answered {sent.status}, and another copy was in force after that"
            yield Breach(Kind.OTHER_COPY, Case.of(sent, what), since=sent.sent_at)
        if sent.robots is not None:
            origin.copies.add(sent.robots)
        if -TOLERANCE <= sent.robots_at - sent.sent_at <= LONGEST_SETTLING + TOLERANCE:
            origin.fetches[sent.robots_at] = sent.robots

    def is_recorded(self, sent: LoggedRequest, asked_at: float) -> bool:
        """Return True if the request for the robots.txt that a request names is recorded."""
        origin = self._of(sent)
        return asked_at in origin.fetches or self._has_failed(origin, asked_at)

    def lacking(self, sent: LoggedRequest) -> str:
        """Return what is not known of the robots.txt that a request names; "" if all is."""
        if sent.robots is not None and self._basis.rules(sent) is None:
            return NO_COPY
        at = sent.robots_at or 0.0
        is_known = at < self._basis.since or self.is_recorded(sent, at)
        return "" if is_known else NO_FETCH

    def breaches(self, sent: LoggedRequest, asked_at: float) -> Iterator[Breach]:
        """Yield a breach if the recorded request for robots.txt brought another copy."""
        origin, run = self._of(sent), self._basis.run(sent)
        is_phased = run is not None and run.facts.robots_unreachable == "phased"
        if sent.robots is None:  # WALSH_ROBOTS_UNREACHABLE decided
            is_that = is_phased or not origin.copies
        elif asked_at in origin.fetches:
            is_that = sent.robots == origin.fetches[asked_at]
        else:  # its last try was never sent
            is_that = origin.redirects or not origin.copies or sent.robots in origin.copies
        if not is_that:
            what = f"{sent.url} names another copy than its robots.txt was"
            yield Breach(Kind.OTHER_COPY, Case.of(sent, what), since=asked_at)

    @staticmethod
    def _has_failed(origin: _Origin, asked_at: float) -> bool:
        """Return True if a fetch that failed had tries before the moment at which it ended."""
        return 0.0 <= asked_at - origin.failed_at <= DAY

    def _of(self, sent: LoggedRequest) -> _Origin:
        if sent is not self._last:  # each is asked about several times
            if self._last is None or sent.host != self._last.host:
                self._origins.clear()
            self._last, self._origin = sent, self._origins[origin_of(sent.url)]
        return self._origin


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
        self._findings.judge(rows, breaches, lacking=self._lacking(sent))

    def see_denial(self, denial: LoggedDenial) -> None:
        """Judge one denial: that a copy allows what was denied is no breach, but is counted."""
        rules = self._basis.rules(denial) if denial.gate == "robots" else None
        if rules is None:
            return
        is_allowed, theirs = rules.verdict(denial.url).allowed, self._second_reading(denial)
        self._findings.count("2", denied_though_allowed=int(is_allowed))
        self._findings.count("2", denied_though_protego_allows=int(theirs is True))

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

    def _lacking(self, sent: LoggedRequest) -> str:
        run = self._basis.run(sent)
        if run is None:
            return NO_RUN
        if sent.robots is None:
            return "" if run.facts.robots_unreachable == "allow" else _NO_FILE
        return self.fetches.lacking(sent)


def _is_named(rules: Rules) -> bool:
    """Return True if a group of its own, and not that of all, is in force for the bot."""
    return rules.group not in (None, "*")


def _makes_wait(rules: Rules, at: float) -> bool:
    """Return True if the copy itself makes requests wait: it may outlive its day (decision 7)."""
    moment = datetime.fromtimestamp(at, UTC)
    return bool(rules.crawl_delay or rules.interval(moment)) or rules.opens(moment) > moment
