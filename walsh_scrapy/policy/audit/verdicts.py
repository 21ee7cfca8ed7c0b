"""What the findings of an audit, and a conformance run, mean for each row of the checklist."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from walsh_scrapy.policy.audit.checklist import CHECKLIST, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from walsh_scrapy.policy.audit.checklist import Row
    from walsh_scrapy.policy.audit.findings import Finding, Findings


class Verdict(StrEnum):
    """What the evidence says of one requirement."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    NOT_SHOWN = "not shown"  #: no record and no scenario is about it


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
    verdict: Verdict
    judged: int
    unshown: Mapping[str, int]  #: by reason
    numbers: Mapping[str, float | None]
    findings: Mapping[Kind, Finding]
    trial: Trial | None

    @property
    def breaks_a_must(self) -> bool:
        """Whether something is shown that the contract forbids; a SHOULD is only reported."""
        is_failed = self.trial is not None and bool(self.trial.failed)
        return is_failed or any(kind.level == "MUST" for kind in self.findings)


def verdicts(findings: Findings, trials: Mapping[str, Trial]) -> tuple[RowVerdict, ...]:
    """Return each row of the checklist with its verdict; ``trials`` are by row."""
    return tuple(_verdict(row, findings, trials.get(row.number)) for row in CHECKLIST)


def _verdict(row: Row, findings: Findings, trial: Trial | None) -> RowVerdict:
    own = {kind: found for kind, found in findings.found.items() if kind.row == row.number}
    judged = findings.judged[row.number]
    failed = bool(trial and (trial.failed or trial.failed_should))
    verdict = Verdict.NOT_SHOWN
    if own or failed:
        verdict = Verdict.BROKEN
    elif judged or (trial and trial.passed):
        verdict = Verdict.HOLDS
    return RowVerdict(
        row=row,
        verdict=verdict,
        judged=judged,
        unshown={
            reason: count
            for (number, reason), count in findings.unshown.items()
            if number == row.number
        },
        numbers=findings.numbers.get(row.number, {}),
        findings=own,
        trial=trial,
    )
