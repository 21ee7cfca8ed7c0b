"""Row 3: how old the blocklist was by which a request was judged (R3, decision 14).

A run uses a list for its own `refresh`. Then it asks for it again, or its record shows that it
tried. Times are epoch seconds, durations seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.backoff import is_good, is_redirect
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.policy.pacing import LONGEST_FOR_BLOCKLIST
from walsh_scrapy.policy.robots.access import LATENESS

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.record import Basis, LoggedRequest, RunTerms


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
