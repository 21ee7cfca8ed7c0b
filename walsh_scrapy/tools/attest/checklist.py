"""The contract's checklist (section 8): its rows, the kinds of findings, and the verdicts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeAlias

Level: TypeAlias = Literal["MUST", "SHOULD"]

#: Reasons why a request shows nothing, each as the end of a sentence about it.
NO_RUN: Final = "names no run that is recorded"
NO_COPY: Final = "names a copy of robots.txt that is not kept"
NO_FETCH: Final = "names a robots.txt whose request is not recorded"
NO_LIST: Final = "names a blocklist that is not kept"
CLOCK_SET: Final = "was recorded about when a clock was set"
END_UNKNOWN: Final = "was sent, end unknown"
AFTER_UNKNOWN: Final = "came next after a request whose end is unknown"
IN_FUTURE: Final = "is recorded for a moment in the future"


class Row(NamedTuple):
    """One row of the checklist."""

    number: str  #: as in the contract: "1", "2a", ...
    rule: str  #: "R1" to "R9"
    level: str  #: "MUST", "SHOULD", or both for a row that has both
    requirement: str


#: Rows 3c and 9 are SHOULD in the table; sections 5.2 and 6.4 add a MUST NOT to each.
CHECKLIST: Final = (
    Row("1", "R1", "MUST", "Exact User-Agent string"),
    Row("2", "R2", "MUST", "robots.txt fetched and obeyed, RFC 9309 group selection"),
    Row("2a", "R2", "MUST", "Named Walsh-Research group overrides *"),
    Row("3", "R3", "MUST", "Operator blocklist consulted, checked before robots.txt"),
    Row("3a", "R3", "MUST", "Blocklist matches apex and subdomains"),
    Row("3b", "R3", "MUST", "Last blocklist retained on fetch failure"),
    Row("3c", "R3", "SHOULD / MUST NOT", "Blocklist validated by its schema; invalid rejected"),
    Row("4", "R4", "MUST", "Serial; at most 1 request/s/domain; Crawl-delay honoured"),
    Row("5", "R5", "MUST", "429/503: exponential backoff and jitter; Retry-After"),
    Row("6", "R6", "MUST", "No recursion, no sub-resources, metadata only"),
    Row("7", "R7", "SHOULD", "Conditional fetch and dedup"),
    Row("8", "R8", "SHOULD", "Infrequent: daily or less per source"),
    Row("9", "R9", "SHOULD / MUST NOT", "Feed-less: markdown or llms.txt; never scrape HTML"),
)


class Kind(NamedTuple):
    """A kind of finding."""

    name: str  #: in JSON and docs
    row: str
    level: Level
    problem: str
    table: str = "requests"  #: whose rows show it


_KINDS: Final = (
    Kind("user-agent", "1", "MUST", "a run sent another User-Agent"),
    Kind("no-robots", "2", "MUST", "a request was sent without a robots.txt"),
    Kind("denied", "2", "MUST", "the robots.txt of the time denies a request"),
    Kind("old-robots", "2", "MUST", "a robots.txt was used for longer than a day"),
    Kind("denied-by-name", "2a", "MUST", "the group that names the bot denies a request"),
    Kind("no-blocklist", "3", "MUST", "the blocklist was not consulted"),
    Kind("robots-first", "3", "MUST", "robots.txt was checked before the blocklist"),
    Kind("listed", "3", "MUST", "a request went to a domain that was listed at the time"),
    Kind("stale-list", "3", "MUST", "a blocklist was used for longer than its refresh"),
    Kind("listed-above", "3a", "MUST", "a request went to a subdomain of a listed domain"),
    Kind("forgotten-list", "3b", "MUST", "a blocklist that was in force was forgotten"),
    Kind("invalid-list", "3c", "MUST", "an invalid blocklist was in force", "copies"),
    Kind("short-gap", "4", "MUST", "a gap was shorter than the required delay"),
    Kind("host-at-once", "4", "MUST", "a host had two requests at once"),
    Kind("run-at-once", "4", "MUST", "a run had two requests at once"),
    Kind("too-early", "5", "MUST", "a host was requested before its hold was over"),
    Kind("no-hold", "5", "MUST", "a refusal put its host on no hold"),
    Kind("short-hold", "5", "MUST", "a hold was shorter than the Retry-After"),
    Kind("no-growth", "5", "MUST", "the holds after refusals in a row did not double"),
    Kind("undeclared", "6", "MUST", "a URL was requested that no source declares"),
    Kind("content", "6", "MUST", "an entry has more than metadata", "entries"),
    Kind("duplicate", "7", "SHOULD", "an entry is stored twice", "entries"),
    Kind("reported-again", "7", "SHOULD", "a run reported entries that were known", "runs"),
    Kind("too-often", "8", "SHOULD", "a source was visited again within a day"),
    Kind("scraped", "9", "MUST", "an entry comes from neither a feed nor markdown", "entries"),
)
KINDS: Final = {kind.name: kind for kind in _KINDS}


class Verdict(StrEnum):
    """The verdict about one row of the checklist (decision 37)."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    NOT_SHOWN = "not shown"  #: some requests show nothing, or no request is about it
    IN_PART = "holds in part"  #: the other clauses do not bind this bot
    NOT_APPLICABLE = "not applicable"  #: no clause binds this bot


@dataclass
class Finding:
    """The rows of the state that break a requirement in one way."""

    kind: Kind
    count: int
    first: int | str  #: the number or key of the first one
    detail: str  #: about the first one; empty if its URL says all


@dataclass
class Tally:
    """The outcomes of all questions, by row of the checklist."""

    shown: Counter[str] = field(default_factory=Counter)
    #: By row and reason.
    not_shown: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: The clauses of a row that do not bind this bot.
    waived: dict[str, str] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, row: str, outcome: str, count: int, first: int | str, detail: str = "") -> None:
        """Count rows of the state with one outcome for a row of the checklist.

        The outcome is the name of a kind of finding, the reason why they show nothing, or empty if
        they show that the requirement was kept.
        """
        kind = KINDS.get(outcome)
        if kind is not None:
            finding = self.findings.setdefault(outcome, Finding(kind, 0, first, detail))
            finding.count += count
            if first < finding.first:  # type: ignore[operator]  # both of one table
                finding.first, finding.detail = first, detail
        elif outcome:
            self.not_shown[row, outcome] += count
        else:
            self.shown[row] += count

    def findings_of(self, row: str) -> list[Finding]:
        """Return the findings of a row."""
        return [finding for finding in self.findings.values() if finding.kind.row == row]

    def reasons_of(self, row: str) -> dict[str, int]:
        """Return the number of requests or entries that show nothing, by reason."""
        return {reason: count for (of, reason), count in self.not_shown.items() if of == row}

    def verdict(self, row: str) -> Verdict:
        """Return the verdict about a row."""
        if self.findings_of(row):
            return Verdict.BROKEN
        if self.reasons_of(row):
            return Verdict.NOT_SHOWN
        if row in self.waived:
            return Verdict.IN_PART if self.shown[row] else Verdict.NOT_APPLICABLE
        return Verdict.HOLDS if self.shown[row] else Verdict.NOT_SHOWN
