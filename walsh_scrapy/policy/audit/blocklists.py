"""Rows 3 to 3c: the blocklist of the time, judged again (R3, decision 14).

Each request is judged by the list that its record names, and by the age of that list. Times are
epoch seconds, durations seconds.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.record import NO_RUN
from walsh_scrapy.policy.backoff import is_good, is_redirect
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.policy.pacing import LONGEST_FOR_BLOCKLIST
from walsh_scrapy.policy.robots.copy import LATENESS
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.audit.findings import Findings
    from walsh_scrapy.policy.audit.record import Basis, LoggedDenial, LoggedRequest, RunTerms

_NO_LIST_OF_ITS_OWN: Final = "this bot has no blocklist (WALSH_BLOCKLIST_URL is empty)"
#: What is not known of a request that names a list.
_NO_LIST: Final = "names a blocklist that is not kept"


class _Look(NamedTuple):
    """The last look for a list that a run knows of."""

    at: float
    #: Until when its host, or a failure, may keep the next look back.
    kept_until: float = -math.inf
    is_known: bool = True  #: False if it was before the record begins

    def due_at(self, refresh: float) -> float:
        """Return when the next request has to look again; what it waits itself is included."""
        return max(self.at + refresh, self.kept_until) + LATENESS


class ListAge:
    """Finds requests by a list that was out of date; they come in the order of their times.

    In doubt a run is right. A failure excuses the rest of its run, in which the host may be put
    off, and all runs of a day, for which it may be on hold. One request that is late is none that
    passed the gate late: the machine may have been suspended. The second one is, and so is the
    first one of a run that began when the list was due.
    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._last: dict[str, _Look] = {}  # by the address of the list
        self._of_run: dict[int, _Look] = {}
        self._excused: set[int] = set()  # runs that tried in vain
        self._sent_at: dict[int, float] = {}  # the last request of each run
        self._found: set[int] = set()  # runs that fetched a list which no request has named yet
        #: The list that was adopted last, by its address.
        self.newest: dict[str, str] = {}

    def overdue(self, sent: LoggedRequest, run: RunTerms) -> float | None:
        """Return by how much the list of a request was out of date; 0 if it was not.

        None if it was fetched before the record begins, and in time.
        """
        number, url = sent.run or 0, run.facts.blocklist_url
        look = self._look(number, url)
        before = self._sent_at.get(number, run.begun)
        self._sent_at[number] = sent.sent_at
        if not url or self._basis.is_for_list(sent):
            self._see(sent, run, look)
            return 0.0
        if sent.blocklist and number in self._found:
            self._found.discard(number)
            self.newest[url] = sent.blocklist
        refresh = self._refresh(sent)
        if refresh is None or number in self._excused:
            return 0.0
        overdue = min(before, sent.sent_at) - look.due_at(refresh)
        return None if overdue <= 0 and not look.is_known else max(0.0, overdue)

    def _look(self, number: int, url: str) -> _Look:
        """Return the last look that a run knows: its own, or what it found when it began."""
        since = self._basis.since
        unknown = _Look(since, since + LONGEST_FOR_BLOCKLIST, is_known=False)
        return self._of_run.setdefault(number, self._last.get(url, unknown))

    def _see(self, sent: LoggedRequest, run: RunTerms, look: _Look) -> None:
        """Take note of a request for the list, or for the robots.txt that it needs."""
        number, facts, status = sent.run or 0, run.facts, sent.status
        is_schema = sent.url == facts.blocklist_schema_url != facts.blocklist_url
        is_answered = status is not None and (is_good(status) or is_redirect(status))
        if not facts.blocklist_url or is_schema or (sent.purpose == "robots" and is_answered):
            return
        kept = sent.ended + min(LONGEST_FOR_BLOCKLIST, max(sent.pause, sent.hold))
        if status is not None and (200 <= status < 300 or status == 304):
            look = _Look(sent.ended, kept)
            self._excused.discard(number)
            self._found.add(number)
        elif not (status is not None and is_redirect(status)):
            look = look._replace(kept_until=sent.ended + LONGEST_FOR_BLOCKLIST)
            self._excused.add(number)
        self._of_run[number] = self._last[facts.blocklist_url] = look

    def _refresh(self, sent: LoggedRequest) -> float | None:
        """Return for how long the list of a request counts; None if it is not kept."""
        if sent.blocklist is None:
            return Blocklist.EMPTY.refresh.total_seconds()
        listed = self._basis.documents.blocklist(sent.blocklist)
        return None if listed is None else listed.refresh.total_seconds()


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
        self._findings.judge(rows, chain(breaches, _listed(sent, listed)))

    def see_denial(self, denial: LoggedDenial) -> None:
        """Judge one denial: that the host was not listed is no breach, but is counted."""
        if denial.gate != "blocklist" or denial.blocklist is None:
            return
        listed = self._basis.documents.blocklist(denial.blocklist)
        if listed is None:
            return
        self._findings.count("3", denied_though_not_listed=int(listed.blocks(denial.url) is None))

    def end(self) -> None:
        """Note how many lists there were."""
        self._findings.count("3", lists=len(self._lists))

    def _judge_order(self, sent: LoggedRequest) -> None:
        if sent.purpose == "blocklist":
            return  # the list itself, or a hop of it, whose first robots.txt was asked for before
        kind = Kind.ROBOTS_FIRST if "blocklist: " in sent.gates else Kind.NO_BLOCKLIST
        self._findings.judge("3", [Breach(kind, Case.of(sent, f"{sent.url}: {sent.gates}"))])

    def _judge_memory(self, sent: LoggedRequest, run: RunTerms) -> None:
        """Find a request without a list, in a run that had one or began after one was in force."""
        url, number, breaches = run.facts.blocklist_url, sent.run or 0, list[Breach]()
        if sent.blocklist is not None:
            self._named_at.setdefault(url, sent.sent_at)
            self._named_by.add(number)
        elif number in self._named_by or self._named_at.get(url, math.inf) < run.begun:
            what = f"{sent.url} was judged by no list, though one was in force before"
            since = self._named_at.get(url, sent.sent_at)
            breaches.append(Breach(Kind.FORGOTTEN, Case.of(sent, what), since=since))
        if url in self._named_at:
            self._findings.judge(("3b",), breaches)

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
        """Judge a list when it is first named: one that is invalid was in force."""
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


def _listed(sent: LoggedRequest, listed: Blocklist) -> Iterator[Breach]:
    if entry := listed.blocks(sent.url):
        kind = Kind.LISTED if entry.domain == host_of(sent.url) else Kind.LISTED_ABOVE
        what = f"{sent.url} is under {entry.domain}, which was listed"
        yield Breach(kind, Case.of(sent, what))
