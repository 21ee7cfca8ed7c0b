"""What an audit found in a record, and what that says of each row of the checklist."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.audit.checklist import CHECKLIST, FIGURES, LEAST, Case, Kind
from walsh_scrapy.policy.audit.clocks import CLOCK_SET, SetClocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from walsh_scrapy.policy.audit.checklist import Breach, Row

_KINDS: Final = {kind.label: kind for kind in Kind}


@dataclass(slots=True)
class Breaches:
    """All breaches of one kind."""

    worst: Case
    badness: float  #: of the worst case
    count: int = 0


@dataclass
class Tally:
    """What was found in a part of a record. Rows are named by their numbers in the checklist.

    For each row a record is shown, not shown, or broken.
    """

    found: dict[Kind, Breaches] = field(default_factory=dict)
    shown: Counter[str] = field(default_factory=Counter)  #: records that kept to it, by row
    #: Records of which it is not known, by row and reason.
    unshown: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Why a row, or a part of it, does not apply, by row.
    waived: dict[str, str] = field(default_factory=dict)
    #: Figures of the evidence, by row and name.
    numbers: dict[str, dict[str, float | None]] = field(default_factory=dict)

    def add(self, kind: Kind, case: Case, badness: float = 0.0, count: int = 1) -> None:
        """Count a breach; the worst of a kind is kept, the first one among equals."""
        finding = self.found.get(kind)
        if finding is None:
            finding = self.found[kind] = Breaches(case, badness)
        elif badness > finding.badness:
            finding.worst, finding.badness = case, badness
        finding.count += count

    def note(self, row: str, numbers: Mapping[str, float | None]) -> None:
        """Add to figures of the evidence of a row; of `LEAST` the least is kept, None for none."""
        known = self.numbers.setdefault(row, {})
        for name, number in numbers.items():
            before = known.get(name)
            if before is None or number is None:
                known[name] = number if before is None else before
            else:
                known[name] = min(before, number) if name == LEAST else before + number

    def take_in(self, other: Tally) -> None:
        """Add what was found in another part, which comes after this one."""
        for kind, found in other.found.items():
            self.add(kind, found.worst, found.badness, found.count)
        self.shown += other.shown
        self.unshown += other.unshown
        self.waived |= other.waived
        for row, numbers in other.numbers.items():
            self.note(row, numbers)

    def to_json(self) -> str:
        """Return it as JSON, for `from_json`."""
        found = [
            [kind.label, list(each.worst), each.badness, each.count]
            for kind, each in self.found.items()
        ]
        unshown = [[row, reason, count] for (row, reason), count in self.unshown.items()]
        members = {"found": found, "shown": self.shown, "unshown": unshown}
        return json.dumps(members | {"waived": self.waived, "numbers": self.numbers})

    @classmethod
    def from_json(cls, text: str) -> Tally:
        """Read what `to_json` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        members = json.loads(text)
        found = {
            _KINDS[label]: Breaches(Case(*worst), badness, count)
            for label, worst, badness, count in members["found"]
        }
        unshown = {(row, reason): count for row, reason, count in members["unshown"]}
        given = members["waived"], members["numbers"]
        return cls(found, Counter(members["shown"]), Counter(unshown), *given)


@dataclass
class Findings(Tally):
    """What an audit found in a record as a whole, and in parts of it, which are counted apart.

    What follows from times that are not certain, by ``clocks``, is not shown. The ``parts`` that it
    is made with were judged before: they stay as they are, and only teach the audits what follows.
    """

    clocks: SetClocks = field(default_factory=SetClocks)
    parts: dict[str, Tally] = field(default_factory=dict)  #: by their names

    def __post_init__(self) -> None:
        """Begin with the record as a whole."""
        self._part: Tally = self
        self._judged_before = frozenset(self.parts)
        self._counts = True

    def turn_to(self, part: str | None) -> None:
        """Count what is judged from now on in a part; None for the record as a whole."""
        self._part = self if part is None else self.parts.setdefault(part, Tally())
        self._counts = part not in self._judged_before

    def total(self) -> Tally:
        """Return what was found in all parts, in the order of their names, and in the whole."""
        total = Tally()
        for name in sorted(self.parts):
            total.take_in(self.parts[name])
        total.take_in(self)
        return total

    def judge(
        self, rows: Iterable[str], breaches: Iterable[Breach] = (), *, lacking: str = ""
    ) -> None:
        """Count one record for some rows, and its breaches.

        A row that none of them breaks is shown, unless evidence is ``lacking``: a clause without
        its subject, the record.
        """
        if not self._counts:
            return
        if found := list(breaches):
            rows = self._left_of(rows, found)
        for row in rows:
            if lacking:
                self._part.unshown[row, lacking] += 1
            else:
                self._part.shown[row] += 1

    def _left_of(self, rows: Iterable[str], found: Iterable[Breach]) -> list[str]:
        """Count breaches, and return the rows that none of them is about."""
        doubtful, broken = set[str](), set[str]()
        for breach in found:
            if self._is_certain(breach):
                self._part.add(breach.kind, breach.case, breach.badness)
                broken.add(breach.kind.row)
            else:
                doubtful.add(breach.kind.row)
        for row in doubtful - broken:
            self._part.unshown[row, CLOCK_SET] += 1
        return [row for row in rows if row not in broken | doubtful]

    def _is_certain(self, breach: Breach) -> bool:
        at = breach.case.at
        return breach.since is None or at is None or self.clocks.are_certain(breach.since, at)

    def waive(self, rows: Iterable[str], reason: str) -> None:
        """Note that rows, or parts of them, bind Walsh-Research alone, and not this bot."""
        if self._counts:
            self._part.waived |= dict.fromkeys(rows, reason)

    def count(self, row: str, **numbers: float | None) -> None:
        """Add to figures of the evidence of a row, as `note` does."""
        if self._counts:
            self._part.note(row, numbers)


class Standing(StrEnum):
    """What the evidence says of one requirement."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    NOT_APPLICABLE = "not applicable"  #: it binds Walsh-Research, and this is another bot
    NOT_SHOWN = "not shown"  #: something has no evidence, or no record and no scenario is about it


@dataclass(frozen=True, slots=True)
class Trial:
    """What a conformance run says of one row."""

    passed: int
    failed: tuple[str, ...]  #: the scenarios of a MUST or MUST NOT
    failed_should: tuple[str, ...] = ()


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
    trial: Trial | None

    @property
    def broken(self) -> int:
        """How many breaches were found; a record may have several."""
        return sum(found.count for found in self.findings.values())

    @property
    def breaks_a_must(self) -> bool:
        """Whether something is shown that the contract forbids; a SHOULD is only reported."""
        is_failed = self.trial is not None and bool(self.trial.failed)
        return is_failed or any(kind.level == "MUST" for kind in self.findings)


def verdicts(findings: Tally, trials: Mapping[str, Trial]) -> tuple[RowVerdict, ...]:
    """Return each row of the checklist with its verdict; ``trials`` are by row."""
    return tuple(_verdict(row, findings, trials.get(row.number)) for row in CHECKLIST)


def _verdict(row: Row, findings: Tally, trial: Trial | None) -> RowVerdict:
    own = {kind: found for kind, found in findings.found.items() if kind.row == row.number}
    shown = findings.shown[row.number]
    unshown = {
        reason: count
        for (number, reason), count in findings.unshown.items()
        if number == row.number
    }
    failed = bool(trial and (trial.failed or trial.failed_should))
    verdict = Standing.NOT_SHOWN
    if own or failed:
        verdict = Standing.BROKEN
    elif not unshown and (shown or (trial and trial.passed)):
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
        trial=trial,
    )
