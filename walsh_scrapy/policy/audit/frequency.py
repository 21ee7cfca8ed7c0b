"""Rows 7 and 8: how often a URL was asked for, and how often it was unchanged (R7, R8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.audit.checklist import Kind
from walsh_scrapy.policy.audit.facts import CLOCK, DAY
from walsh_scrapy.policy.audit.findings import Case
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.facts import Sent
    from walsh_scrapy.policy.audit.findings import Findings

#: URLs of one host in memory before those are forgotten that were asked for a day ago or earlier.
_MOST: Final = 10_000


class _Visit(NamedTuple):
    at: float
    run: int


class FrequencyAudit:
    """Finds URLs that two runs asked for within a day.

    Requests come host by host, and for each host in the order of their times. A request that was
    refused, or got no answer, leaves its source due, so the next one is no second visit. Redirect
    hops and retries of one run are one visit. `-a force=1` shows as a finding.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._host: str | None = None
        self._visits: dict[str, _Visit] = {}
        self._most = _MOST
        self._again = self._unchanged = 0

    def see(self, sent: Sent) -> None:
        """Judge one request."""
        if sent.purpose != "target" or sent.run is None:
            return
        if sent.host != self._host:
            self._host = sent.host
            self._visits.clear()
        self._findings.judged["8"] += 1
        last = self._visits.get(sent.url)
        if last is not None and last.run != sent.run:
            self._findings.judged["7"] += 1
            self._again += 1
            self._unchanged += sent.status == 304
            since = sent.sent_at - last.at
            if since < DAY - CLOCK:
                what = f"{sent.url} was asked for after {format_seconds(since)}"
                self._findings.add(Kind.TOO_OFTEN, _case(sent, what), -since)
        is_whole = sent.status is not None and not sent.error  # else it may have been given up
        is_answered = is_whole and sent.status not in RETRIED_STATUSES
        if is_answered and (last is None or last.run != sent.run):
            self._keep(sent, sent.run)

    def end(self) -> None:
        """Note the figures."""
        self._findings.note("7", asked_again=self._again, unchanged=self._unchanged)

    def _keep(self, sent: Sent, run: int) -> None:
        if len(self._visits) >= self._most:
            recent = sent.sent_at - DAY
            self._visits = {url: last for url, last in self._visits.items() if last.at > recent}
            self._most = max(_MOST, 2 * len(self._visits))
        self._visits[sent.url] = _Visit(sent.sent_at, run)


def _case(sent: Sent, what: str) -> Case:
    return Case("requests", sent.id, sent.sent_at, what)
