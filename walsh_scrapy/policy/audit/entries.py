"""Rows 6, 7 and 9: what was kept is metadata, once, of feeds and markdown (R6, R7, R9)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.audit.checklist import Kind
from walsh_scrapy.policy.audit.findings import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from walsh_scrapy.policy.audit.facts import Kept, Sent
    from walsh_scrapy.policy.audit.findings import Findings

_KINDS: Final = ("feed", "llms")
_DUMP: Final = "llms-full.txt"


class EntryAudit:
    """Judges what the record keeps of other people's pages, and asks for.

    ``problem`` returns why an item may not be kept, "" if it may.
    """

    def __init__(self, findings: Findings, problem: Callable[[Mapping[str, object]], str]) -> None:
        self._findings = findings
        self._problem = problem
        self._entries = 0

    def see(self, entry: Kept) -> None:
        """Judge one entry."""
        self._entries += 1
        if entry.run is None:
            for row in "69":
                self._findings.unshown[row, "was written by an earlier version"] += 1
            return
        for row in "679":
            self._findings.judged[row] += 1
        key, kind, first_seen = entry.key, entry.kind, entry.first_seen
        try:
            values = json.loads(entry.item)
            problem = self._problem(values) if isinstance(values, dict) else "it is no item"
        except ValueError:
            problem = "its item is no JSON"
        if problem:
            self._findings.add(Kind.CONTENT, Case("entries", key, first_seen, problem))
        if kind not in _KINDS:
            what = f"its kind is {kind!r}"
            self._findings.add(Kind.SCRAPED, Case("entries", key, first_seen, what))

    def see_duplicate(self, key: str) -> None:
        """Count an entry whose page and id, or page and title, another entry has too."""
        what = "another entry of its page has the same id or title"
        self._findings.add(Kind.DUPLICATE, Case("entries", key, None, what))

    def see_request(self, sent: Sent) -> None:
        """Judge what was asked for."""
        if sent.purpose != "target":
            return
        self._findings.judged["6"] += 1
        if _DUMP in sent.url.lower():
            case = Case("requests", sent.id, sent.sent_at, sent.url)
            self._findings.add(Kind.DUMP, case)

    def end(self) -> None:
        """Note the figures."""
        self._findings.note("6", entries=self._entries)
