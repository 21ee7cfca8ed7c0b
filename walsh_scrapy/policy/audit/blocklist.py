"""Rows 3 to 3c: the blocklist in force at the time, judged again (R3, decision 14)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from walsh_scrapy.policy.audit.checklist import Kind
from walsh_scrapy.policy.audit.findings import Case
from walsh_scrapy.policy.urls import host_of

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.facts import Documents, KeptBack, Run, Sent
    from walsh_scrapy.policy.audit.findings import Findings


class BlocklistAudit:
    """Judges each request by the list that its record names.

    Requests come in the order of their times, so that few lists are in use at once.
    """

    def __init__(self, findings: Findings, documents: Documents) -> None:
        self._findings = findings
        self._documents = documents
        # When a list was first named: by the address of the list, and by run.
        self._named_at: dict[str, float] = {}
        self._named_by: set[int] = set()
        self._lists: set[str] = set()
        self._without = self._too_cautious = 0

    def see(self, sent: Sent, run: Run | None) -> None:
        """Judge one request."""
        if not sent.has_evidence:
            self._unshown("was written by an earlier version")
            return
        if run is None:
            self._unshown("names no run that is recorded")
            return
        if not sent.gates.startswith("blocklist: "):
            self._judge_order(sent)
            return
        self._findings.judged["3"] += 1
        self._judge_memory(sent, run)
        if sent.blocklist is None:
            self._without += 1
            return
        listed = self._documents.blocklist(sent.blocklist)
        if listed is None:
            self._unshown("names a blocklist that is not kept")
            return
        self._judge_list(sent)
        self._findings.judged["3a"] += len(listed) > 0
        if entry := listed.blocks(sent.url):
            is_itself = entry.domain == host_of(sent.url)
            kind = Kind.LISTED if is_itself else Kind.LISTED_ABOVE
            what = f"{sent.url} is under {entry.domain}, which was listed"
            self._findings.add(kind, _case(sent, what))

    def see_denial(self, denial: KeptBack) -> None:
        """Judge one denial: that the host was not listed is no breach, but is counted."""
        if denial.gate != "blocklist" or denial.blocklist is None:
            return
        listed = self._documents.blocklist(denial.blocklist)
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

    def _judge_order(self, sent: Sent) -> None:
        if sent.purpose == "blocklist":
            return  # the list itself, or a hop of it, whose first robots.txt was asked for before
        self._findings.judged["3"] += 1
        if "blocklist: " in sent.gates:
            self._findings.add(Kind.ROBOTS_FIRST, _case(sent, f"{sent.url}: {sent.gates}"))
        else:
            self._findings.add(Kind.NO_BLOCKLIST, _case(sent, f"{sent.url}: {sent.gates}"))

    def _judge_memory(self, sent: Sent, run: Run) -> None:
        """Find a request without a list, in a run that had one or began after one was in force."""
        url, number = run.facts.blocklist_url, sent.run or 0
        if sent.blocklist is not None:
            self._named_at.setdefault(url, sent.sent_at)
            self._named_by.add(number)
        elif number in self._named_by or self._named_at.get(url, math.inf) < run.begun:
            what = f"{sent.url} was judged by no list, though one was in force before"
            self._findings.add(Kind.FORGOTTEN, _case(sent, what))
        self._findings.judged["3b"] += url in self._named_at

    def _judge_list(self, sent: Sent) -> None:
        """Judge a list when it is first named: one that is invalid was salvaged or is wrong."""
        name = sent.blocklist
        if name is None or name in self._lists:
            return
        self._lists.add(name)
        self._findings.judged["3c"] += 1
        if error := self._documents.blocklist_error(name):
            self._findings.add(Kind.INVALID_LIST, Case("copies", name, sent.sent_at, error))

    def _unshown(self, reason: str) -> None:
        self._findings.unshown["3", reason] += 1


def _case(sent: Sent, what: str) -> Case:
    return Case("requests", sent.id, sent.sent_at, what)
