"""Rows 6 to 9: how often what was asked for, and what was kept of it (R6 to R9)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.clocks import TOLERANCE
from walsh_scrapy.policy.audit.record import DAY, NO_RUN
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from walsh_scrapy.policy.audit.findings import Findings
    from walsh_scrapy.policy.audit.record import Basis, EntryRow, LoggedRequest, ReportedRun

_KINDS: Final = ("feed", "llms")
#: What of a second visit within a day is not known: whether it had to be.
_FORCED: Final = "was asked for before it was due, by the operator (force)"
_BY_HAND: Final = "was asked for by hand and by another run within a day"
#: URLs of one host in memory before those are forgotten that were asked for a day ago or earlier.
_MOST: Final = 10_000


class _Visit(NamedTuple):
    at: float
    run: int


class FrequencyAudit:
    """Finds URLs that two runs asked for within a day.

    Requests come host by host, and for each host in the order of their times. A request that was
    refused, or got no answer, leaves its source due, so the next one is no second visit. Redirect
    hops and retries of one run are one visit. What `-a force=1` asks for again is not shown, nor
    what a command and a crawl ask for within a day: a command is no run (decision 39).
    """

    def __init__(self, findings: Findings, basis: Basis) -> None:
        self._findings = findings
        self._basis = basis
        self._host: str | None = None
        self._visits: dict[tuple[str, bool], _Visit] = {}  # by URL, and whether a command asked
        self._most = _MOST

    def see(self, sent: LoggedRequest) -> None:
        """Judge one request."""
        if sent.purpose != "target":
            return
        run = self._basis.run(sent)
        if sent.run is None or run is None:
            self._findings.judge("78", lacking=NO_RUN)
            return
        if sent.host != self._host:
            self._host = sent.host
            self._visits.clear()
        by_hand = bool(run.command)
        known = {each: self._visits.get((sent.url, each)) for each in (False, True)}
        others = {each: last for each, last in known.items() if last and last.run != sent.run}
        if others:
            self._findings.judge("7")
            self._findings.count("7", asked_again=1, unchanged=int(sent.status == 304))
        least = DAY - TOLERANCE
        recent = {each: last for each, last in others.items() if sent.sent_at - last.at < least}
        breaches, lacking = list[Breach](), ""
        if False in recent and not by_hand and not run.facts.force:
            at = recent[False].at
            what = f"{sent.url} was asked for after {format_seconds(sent.sent_at - at)}"
            breaches.append(Breach(Kind.TOO_OFTEN, Case.of(sent, what), at - sent.sent_at, at))
        elif recent:
            lacking = _FORCED if run.facts.force else _BY_HAND
        self._findings.judge("8", breaches, lacking=lacking)
        is_whole = sent.status is not None and not sent.error  # else a part of it is missing
        is_answered = is_whole and sent.status not in RETRIED_STATUSES
        last = known[by_hand]
        if is_answered and (last is None or last.run != sent.run):
            self._keep((sent.url, by_hand), _Visit(sent.sent_at, sent.run))

    def _keep(self, key: tuple[str, bool], visit: _Visit) -> None:
        if len(self._visits) >= self._most:
            recent = visit.at - DAY
            self._visits = {each: last for each, last in self._visits.items() if last.at > recent}
            self._most = max(_MOST, 2 * len(self._visits))
        self._visits[key] = visit


class EntryAudit:
    """Judges what the record keeps of other people's pages.

    ``problem`` returns why an item may not be kept, "" if it may.
    """

    def __init__(self, findings: Findings, problem: Callable[[Mapping[str, object]], str]) -> None:
        self._findings = findings
        self._problem = problem

    def see(self, entry: EntryRow) -> None:
        """Judge one entry."""
        self._findings.count("6", entries=1)
        self._findings.judge("679", self._kept(entry))

    def see_duplicate(self, key: str) -> None:
        """Count an entry whose page and id, or page and title, another entry has too."""
        what = "another entry of its page has the same id or title"
        self._findings.add(Kind.DUPLICATE, Case("entries", key, None, what))

    def see_reported(self, run: ReportedRun) -> None:
        """Judge what a run reported: an entry is new once, and names the run that found it."""
        again = run.reported - run.stored
        if again > 0:
            what = f"run {run.id} reported {run.reported} new entries, and {run.stored} were new"
            self._findings.add(Kind.REPORTED_AGAIN, Case("runs", run.id, run.ended, what), again)

    def _kept(self, entry: EntryRow) -> Iterator[Breach]:
        key, kind, first_seen = entry.key, entry.kind, entry.first_seen
        try:
            values = json.loads(entry.item)
            problem = self._problem(values) if isinstance(values, dict) else "it is no item"
        except ValueError:
            problem = "its item is no JSON"
        if problem:
            yield Breach(Kind.CONTENT, Case("entries", key, first_seen, problem))
        if kind not in _KINDS:
            what = f"its kind is {kind!r}"
            yield Breach(Kind.SCRAPED, Case("entries", key, first_seen, what))
