"""What an audit found in a record, and what that says of each row of the checklist."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from walsh_scrapy.policy.audit.checklist import CHECKLIST, FIGURES, LEAST
from walsh_scrapy.policy.audit.clocks import CLOCK_SET, SetClocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind, Row


@dataclass(slots=True)
class Breaches:
    """All breaches of one kind."""

    worst: Case
    badness: float  #: of the worst case
    count: int = 0


@dataclass
class Findings:
    """What an audit found in a record. Rows are named by their numbers in the checklist.

    For each row a record is shown, not shown, or broken. What follows from times that are not
    certain, by ``clocks``, is not shown.
    """

    clocks: SetClocks = field(default_factory=SetClocks)
    found: dict[Kind, Breaches] = field(default_factory=dict)
    shown: Counter[str] = field(default_factory=Counter)  #: records that kept to it, by row
    #: Records of which it is not known, by row and reason.
    unshown: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Why a row, or a part of it, does not apply, by row.
    waived: dict[str, str] = field(default_factory=dict)
    #: Figures of the evidence, by row and name.
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, kind: Kind, case: Case, badness: float = 0.0) -> None:
        """Count a breach; the worst of a kind is kept, the first one among equals."""
        finding = self.found.get(kind)
        if finding is None:
            finding = self.found[kind] = Breaches(case, badness)
        elif badness > finding.badness:
            finding.worst, finding.badness = case, badness
        finding.count += 1

    def judge(
        self, rows: Iterable[str], breaches: Iterable[Breach] = (), *, lacking: str = ""
    ) -> None:
        """Count one record for some rows, and its breaches.

        A row that none of them breaks is shown, unless evidence is ``lacking``: a clause without
        its subject, the record.
        """
        if found := list(breaches):
            rows = self._left_of(rows, found)
        for row in rows:
            if lacking:
                self.unshown[row, lacking] += 1
            else:
                self.shown[row] += 1

    def _left_of(self, rows: Iterable[str], found: Iterable[Breach]) -> list[str]:
        """Count breaches, and return the rows that none of them is about."""
        doubtful, broken = set[str](), set[str]()
        for breach in found:
            if self._is_certain(breach):
                self.add(breach.kind, breach.case, breach.badness)
                broken.add(breach.kind.row)
            else:
                doubtful.add(breach.kind.row)
        for row in doubtful - broken:
            self.unshown[row, CLOCK_SET] += 1
        return [row for row in rows if row not in broken | doubtful]

    def _is_certain(self, breach: Breach) -> bool:
        at = breach.case.at
        return breach.since is None or at is None or self.clocks.are_certain(breach.since, at)

    def waive(self, rows: Iterable[str], reason: str) -> None:
        """Note that rows, or parts of them, bind Walsh-Research alone, and not this bot."""
        self.waived |= dict.fromkeys(rows, reason)

    def count(self, row: str, **numbers: float) -> None:
        """Add to figures of the evidence of a row; of `LEAST` the least is kept."""
        known = self.numbers.setdefault(row, {})
        for name, number in numbers.items():
            before = known.get(name)
            if before is None:
                known[name] = number
            else:
                known[name] = min(before, number) if name == LEAST else before + number


class Standing(StrEnum):
    """What the evidence says of one requirement."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    NOT_APPLICABLE = "not applicable"  #: it binds Walsh-Research, and this is another bot
    NOT_SHOWN = "not shown"  #: something has no evidence, or no record is about it


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """One row with its evidence."""

    row: Row
    verdict: Standing
    shown: int  #: records
    unshown: Mapping[str, int]  #: records, by reason
    waived: str  #: what of it does not apply, and why; "" if all does
    numbers: Mapping[str, float | None]
    findings: Mapping[Kind, Breaches]

    @property
    def broken(self) -> int:
        """How many breaches were found; a record may have several."""
        return sum(found.count for found in self.findings.values())

    @property
    def breaks_a_must(self) -> bool:
        """Whether something is shown that the contract forbids; a SHOULD is only reported."""
        return any(kind.level == "MUST" for kind in self.findings)


def verdicts(findings: Findings) -> tuple[RowVerdict, ...]:
    """Return each row of the checklist with its verdict."""
    return tuple(_verdict(row, findings) for row in CHECKLIST)


def _verdict(row: Row, findings: Findings) -> RowVerdict:
    own = {kind: found for kind, found in findings.found.items() if kind.row == row.number}
    shown = findings.shown[row.number]
    unshown = {
        reason: count
        for (number, reason), count in findings.unshown.items()
        if number == row.number
    }
    verdict = Standing.NOT_SHOWN
    if own:
        verdict = Standing.BROKEN
    elif not unshown and shown:
        verdict = Standing.HOLDS
    elif not unshown and row.number in findings.waived:
        verdict = Standing.NOT_APPLICABLE
    return RowVerdict(
        row=row,
        verdict=verdict,
        shown=shown,
        unshown=unshown,
        waived=findings.waived.get(row.number, ""),
        numbers={**FIGURES.get(row.number, {}), **findings.numbers.get(row.number, {})},
        findings=own,
    )
