"""Row 1: every run sent the exact User-Agent (R1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.policy.audit.checklist import Kind
from walsh_scrapy.policy.audit.findings import Case

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.facts import Run, Sent
    from walsh_scrapy.policy.audit.findings import Findings

_ROW = "1"


class IdentityAudit:
    """Compares the User-Agent of each request's run, which the download handler sets on the wire.

    ``wanted`` is the contract's User-Agent.
    """

    def __init__(self, findings: Findings, wanted: str) -> None:
        self._findings = findings
        self._wanted = wanted

    def see(self, sent: Sent, run: Run | None) -> None:
        """Judge one request; requests may come in any order."""
        if run is None:
            self._findings.unshown[_ROW, "names no run that is recorded"] += 1
            return
        self._findings.judged[_ROW] += 1
        if run.facts.user_agent != self._wanted:
            what = f"run {sent.run} sent {run.facts.user_agent!r}"
            self._findings.add(Kind.USER_AGENT, Case("requests", sent.id, sent.sent_at, what))
