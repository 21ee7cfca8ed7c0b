"""Rows 1 and 4: who asked, one request at a time, and whether first ones were held back (R1, R4).

The first request to a host that was not seen before goes out as soon as nothing else is out
(decision 4). A record shows when a run sent nothing, but not why: it may have read a document, its
machine may have been asleep or busy. So a run is accused only if it did so before each of several
first requests, one of them right after a robots.txt, which takes no time to read, and sent others
at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.clocks import TOLERANCE
from walsh_scrapy.policy.audit.record import NO_RUN
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.audit.findings import Findings
    from walsh_scrapy.policy.audit.record import Basis, Bot, LoggedRequest, RunFacts

#: Seconds without a request of the run: by the first a request is late, by the second at once.
_IDLE: Final = 1.0
_AT_ONCE: Final = 0.5
#: First requests of one run that say enough.
_ENOUGH: Final = 4
#: Hosts in memory; of a record with more, the first ones are judged.
_MOST: Final = 100_000


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


class SerialAudit:
    """Finds requests of one run that were out at once; they come in the order of their times."""

    def __init__(self, findings: Findings, basis: Basis) -> None:
        self._findings = findings
        self._basis = basis
        self._ended: dict[int, float] = {}  # by run

    def see(self, sent: LoggedRequest) -> None:
        """Judge one request."""
        if sent.run is None:
            return
        run = self._basis.run(sent)
        if run and run.facts.is_of_another_bot and run.facts.serial is False:
            self._findings.waive("4", "this bot asks several hosts at once (WALSH_SERIAL = False)")
            return
        ended = self._ended.get(sent.run, -math.inf)
        early = ended - sent.sent_at
        if early > TOLERANCE:
            what = f"run {sent.run} asked {sent.host} {early:.3f} s before its last one had ended"
            breach = Breach(Kind.RUN_TWICE, Case.of(sent, what), early, since=ended)
            self._findings.judge("", [breach])
        self._ended[sent.run] = max(ended, sent.ended)


@dataclass(slots=True)
class _Run:
    """What is known of one run that goes on."""

    last: LoggedRequest  #: the request that ended last
    number: int = 0  #: first requests, except for those after the blocklist, which is long
    least: float = math.inf  #: the shortest pause before one of them
    case: Case | None = None  #: the one of them after the longest pause
    longest: float = 0.0
    has_one_after_robots: bool = False
    has_others_at_once: bool = False

    @property
    def is_late(self) -> bool:
        """Whether first requests were held back, and no others."""
        is_each_late = self.number >= _ENOUGH and self.least >= _IDLE
        return is_each_late and self.has_one_after_robots and self.has_others_at_once


class FirstRequestAudit:
    """Judges the pauses before first requests; requests come in the order of their times."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seen: set[str] = set()
        self._runs: dict[int, _Run] = {}

    def see(self, sent: LoggedRequest) -> None:
        """Take note of one request."""
        if sent.run is None:
            return
        name = host_of(sent.url)
        is_first = name not in self._seen and len(self._seen) < _MOST
        if len(self._seen) < _MOST:
            self._seen.add(name)
        run = self._runs.get(sent.run)
        if run is None:
            self._runs[sent.run] = _Run(sent)
            return
        idle = sent.sent_at - run.last.ended
        if not is_first:
            run.has_others_at_once |= idle < _AT_ONCE
        elif run.last.purpose != "blocklist":
            self._note(run, sent, idle)
        if sent.ended >= run.last.ended:
            run.last = sent

    def end(self) -> None:
        """Judge each run."""
        for run in self._runs.values():
            if run.case is not None and run.is_late:
                self._findings.add(Kind.HELD_BACK, run.case, run.longest)

    def _note(self, run: _Run, sent: LoggedRequest, idle: float) -> None:
        run.number += 1
        run.has_one_after_robots |= run.last.purpose == "robots"
        run.least = min(run.least, idle)
        if idle > run.longest:
            what = f"{sent.url} was the first to its host, {idle:.1f} s after the last exchange"
            run.longest, run.case = idle, Case.of(sent, what)
