"""Findings: how often each kind of breach was found, its worst case, and what was judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.checklist import Kind


class Case(NamedTuple):
    """One breach: the record that shows it, and what it shows."""

    table: str
    id: int | str
    at: float | None  #: epoch seconds
    what: str  #: one sentence


@dataclass(slots=True)
class Finding:
    """All breaches of one kind."""

    worst: Case
    badness: float  #: of the worst case; what it counts depends on the kind
    count: int = 0


@dataclass(slots=True)
class Findings:
    """What an audit found. Rows are named by their numbers in the checklist."""

    found: dict[Kind, Finding] = field(default_factory=dict)
    judged: Counter[str] = field(default_factory=Counter)  #: how many records, by row
    #: How many records show nothing, by row and reason.
    unshown: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Figures of the evidence, by row and name.
    numbers: dict[str, dict[str, float | None]] = field(default_factory=dict)

    def add(self, kind: Kind, case: Case, badness: float = 0.0) -> None:
        """Count a breach; the worst of a kind is kept, the first one among equals."""
        finding = self.found.get(kind)
        if finding is None:
            finding = self.found[kind] = Finding(case, badness)
        elif badness > finding.badness:
            finding.worst, finding.badness = case, badness
        finding.count += 1

    def note(self, row: str, **numbers: float | None) -> None:
        """Set figures of the evidence of a row."""
        self.numbers.setdefault(row, {}).update(numbers)
