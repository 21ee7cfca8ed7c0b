"""Row 4: whether first requests to hosts were held back (R4; decision 4).

The first request to a host that was not seen before goes out as soon as nothing else is out. A
record shows when a run sent nothing, but not why: it may have read a document, its machine may have
been asleep or busy. So a run is accused only if it did so before each of several first requests,
one of them right after a robots.txt, which takes no time to read, and sent others at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.audit.checklist import Case, Kind
from walsh_scrapy.policy.urls import host_of

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.checklist import Findings
    from walsh_scrapy.policy.audit.record import LoggedRequest

#: Seconds without a request of the run: by the first a request is late, by the second at once.
_IDLE: Final = 1.0
_AT_ONCE: Final = 0.5
#: First requests of one run that say enough.
_ENOUGH: Final = 4
#: Hosts in memory; of a record with more, the first ones are judged.
_MOST: Final = 100_000


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
        host = host_of(sent.url)
        is_first = host not in self._seen and len(self._seen) < _MOST
        if is_first:
            self._seen.add(host)
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
