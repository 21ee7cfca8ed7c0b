"""The contract's checklist (section 8): its rows, and the findings of an audit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, TypeAlias

from walsh_scrapy.policy.audit.clocks import CLOCK_SET, SetClocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from walsh_scrapy.policy.audit.record import LoggedRequest

Level: TypeAlias = Literal["MUST", "SHOULD"]
#: The figure of which the least counts, and not the sum.
LEAST: Final = "seconds_to_spare"


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


#: Figures of the evidence of which there may be none, by row.
FIGURES: Final[Mapping[str, Mapping[str, float | None]]] = {
    "2": {"compared_with_protego": 0, "robots_of_before_the_record": 0},
    "3": {"lists": 0, "without_a_list_yet": 0, "list_of_before_the_record": 0},
    "4": {"hosts": 0, "gaps": 0, LEAST: None},
    "6": {"entries": 0, "asked_by_hand": 0},
    "7": {"asked_again": 0, "unchanged": 0},
}


class Kind(Enum):
    """A kind of finding: its name in JSON, its row, its level, and a sentence for operators."""

    USER_AGENT = "user-agent", "1", "MUST", "a run sent another User-Agent"
    UNKNOWN_RUN = "unknown-run", "1", "MUST", "a request names a run that the state does not have"
    OUTSIDE_RUN = "outside-run", "1", "MUST", "a request was sent before or after its run"
    FUTURE = "future", "1", "MUST", "a request is recorded for a moment in the future"
    NO_ROBOTS = "no-robots", "2", "MUST", "a request was sent without a robots.txt"
    DENIED = "denied", "2", "MUST", "the robots.txt of the time denies a request"
    DENIED_BY_PROTEGO = "denied-by-protego", "2", "MUST", "Protego, the second reader, denies it"
    OLD_ROBOTS = "old-robots", "2", "MUST", "a robots.txt was used for longer than a day"
    LATER_ROBOTS = "later-robots", "2", "MUST", "a robots.txt was requested after its target"
    UNASKED = "unasked-robots", "2", "MUST", "a robots.txt was never requested at its origin"
    OTHER_COPY = "other-copy", "2", "MUST", "a copy is not the robots.txt of its origin"
    DENIED_BY_NAME = "denied-by-name", "2a", "MUST", "the group that names us denies a request"
    NO_BLOCKLIST = "no-blocklist", "3", "MUST", "the blocklist was not consulted"
    STALE_LIST = "stale-list", "3", "MUST", "a blocklist was used for longer than its refresh"
    ROBOTS_FIRST = "robots-first", "3", "MUST", "robots.txt was checked before the blocklist"
    LISTED = "listed", "3", "MUST", "a request went to a domain that was listed at the time"
    LISTED_ABOVE = "listed-above", "3a", "MUST", "a request went to a subdomain of a listed domain"
    FORGOTTEN = "forgotten-list", "3b", "MUST", "a blocklist that was in force was forgotten"
    INVALID_LIST = "invalid-list", "3c", "MUST", "an invalid blocklist was in force"
    SHORT_PAUSE = "short-pause", "4", "MUST", "a gap was shorter than the delay in force"
    HOST_TWICE = "host-at-once", "4", "MUST", "a host had two requests at once"
    RUN_TWICE = "run-at-once", "4", "MUST", "a run had two requests at once"
    OTHER_HOST = "other-host", "4", "MUST", "a request is recorded under another host"
    TOO_EARLY = "too-early", "5", "MUST", "a host was requested before its hold was over"
    NO_HOLD = "no-hold", "5", "MUST", "a refusal put its host on no hold"
    SHORT_HOLD = "short-hold", "5", "MUST", "a hold was shorter than the Retry-After"
    NO_GROWTH = "no-growth", "5", "MUST", "the holds after refusals in a row did not double"
    NO_JITTER = "no-jitter", "5", "MUST", "there was no chance in the holds after refusals"
    CONTENT = "content", "6", "MUST", "an entry has more than metadata"
    DUMP = "dump", "6", "MUST", "a dump of whole pages (llms-full.txt) was requested"
    UNDECLARED = "undeclared", "6", "MUST", "a URL was requested that no source declares"
    USER_INFO = "user-info", "6", "MUST", "a URL with a user name or a password was requested"
    DUPLICATE = "duplicate", "7", "SHOULD", "an entry is stored twice"
    REPORTED_AGAIN = "reported-again", "7", "SHOULD", "a run reported entries that were known"
    TOO_OFTEN = "too-often", "8", "SHOULD", "a URL was requested again within a day"
    SCRAPED = "scraped", "9", "MUST", "an entry comes from neither a feed nor markdown"

    def __init__(self, label: str, row: str, level: Level, sentence: str) -> None:
        self.label = label
        self.row = row
        self.level = level
        self.sentence = sentence


class Finding(NamedTuple):
    """A finding: the row of the state that shows it, and a sentence about it."""

    kind: Kind
    table: str
    id: int | str
    at: float | None  #: epoch seconds
    what: str  #: one sentence
    badness: float = 0.0  #: its unit depends on the kind
    #: The moment with which `at` is compared, in epoch seconds; None if times do not matter.
    since: float | None = None

    @classmethod
    def of(
        cls,
        kind: Kind,
        sent: LoggedRequest,
        what: str,
        badness: float = 0.0,
        since: float | None = None,
    ) -> Self:
        """Return the finding that a request shows."""
        return cls(kind, "requests", sent.id, sent.requested_at, what, badness, since)


class RowVerdict(StrEnum):
    """The verdict of the evidence about one requirement."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    NOT_APPLICABLE = "not applicable"  #: it binds Walsh-Research, and this is another bot
    NOT_SHOWN = "not shown"  #: a row has no evidence, or no row is about it


@dataclass
class Findings:
    """The findings of an audit. Rows are named by their numbers in the checklist.

    Each row of the state keeps or breaks the rows of the checklist, or does not show that. Results
    of times that are not certain, by ``clocks``, are not shown.
    """

    clocks: SetClocks = field(default_factory=SetClocks)
    found: dict[Kind, Finding] = field(default_factory=dict)  #: the worst of each kind
    broken: Counter[Kind] = field(default_factory=Counter)  #: their numbers
    shown: Counter[str] = field(default_factory=Counter)  #: rows of the state that kept it, by row
    #: Rows of the state that do not show it, by row and reason.
    unshown: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Why a row, or a part of it, does not apply, by row.
    waived: dict[str, str] = field(default_factory=dict)
    #: Figures of the evidence, by row and name.
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count a finding; the worst of a kind is kept, the first one among equals."""
        worst = self.found.setdefault(finding.kind, finding)
        if finding.badness > worst.badness:
            self.found[finding.kind] = finding
        self.broken[finding.kind] += 1

    def decide(
        self, rows: Iterable[str], findings: Iterable[Finding] = (), *, lacking: str = ""
    ) -> None:
        """Count one row of the state for some rows of the checklist, and its findings.

        A row without a finding is kept, unless evidence is ``lacking``: a clause without its
        subject.
        """
        if found := list(findings):
            rows = self._left_of(rows, found)
        for row in rows:
            if lacking:
                self.unshown[row, lacking] += 1
            else:
                self.shown[row] += 1

    def _left_of(self, rows: Iterable[str], found: Iterable[Finding]) -> list[str]:
        """Count findings, and return the rows without one."""
        doubtful, broken = set[str](), set[str]()
        for finding in found:
            if self._is_certain(finding):
                self.add(finding)
                broken.add(finding.kind.row)
            else:
                doubtful.add(finding.kind.row)
        for row in doubtful - broken:
            self.unshown[row, CLOCK_SET] += 1
        return [row for row in rows if row not in broken | doubtful]

    def _is_certain(self, finding: Finding) -> bool:
        at, since = finding.at, finding.since
        return since is None or at is None or self.clocks.are_certain(since, at)

    def waive(self, rows: Iterable[str], reason: str) -> None:
        """Note that rows, or parts of them, bind Walsh-Research alone, and not this bot."""
        self.waived |= dict.fromkeys(rows, reason)

    def count(self, row: str, **numbers: float) -> None:
        """Add to figures of the evidence of a row; the least value of `LEAST` is kept."""
        known = self.numbers.setdefault(row, {})
        for name, number in numbers.items():
            before = known.get(name)
            if before is None:
                known[name] = number
            else:
                known[name] = min(before, number) if name == LEAST else before + number

    def worst(self, row: str) -> list[Finding]:
        """Return the worst finding of each kind of a row."""
        return [finding for kind, finding in self.found.items() if kind.row == row]

    def lacking(self, row: str) -> dict[str, int]:
        """Return the number of doubts whether a row was kept, by reason."""
        return {why: count for (number, why), count in self.unshown.items() if number == row}

    def verdict(self, row: str) -> RowVerdict:
        """Return the verdict of the evidence about a row."""
        if self.worst(row):
            return RowVerdict.BROKEN
        if self.lacking(row):
            return RowVerdict.NOT_SHOWN
        if self.shown[row]:
            return RowVerdict.HOLDS
        return RowVerdict.NOT_APPLICABLE if row in self.waived else RowVerdict.NOT_SHOWN

    def figures(self, row: str) -> dict[str, float | None]:
        """Return the figures of the evidence of a row."""
        return {**FIGURES.get(row, {}), **self.numbers.get(row, {})}
