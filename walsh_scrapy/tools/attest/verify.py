"""Whether a record still has what an attestation judged."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.wording import counted, cut
from walsh_scrapy.state.log import Bounds
from walsh_scrapy.tools.attest.attestation import FORMAT
from walsh_scrapy.tools.attest.digests import Digest, begin_of, digests_of, seal
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from walsh_scrapy.state.log import Log

_LOG: Final = ("requests", "denials")
#: Changed periods that are named; others are counted.
_MOST_NAMED: Final = 10


@dataclass(slots=True)
class Comparison:
    """What is left of the judged record: names of periods, such as `requests of 2026-05-23`."""

    same: int = 0  #: periods that are as they were judged
    deleted: list[str] = field(default_factory=list)  #: too old: all or part may be deleted
    changed: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return what was found, in words."""
        lines = [f"{counted(self.same, 'part')} of the record as judged"]
        if self.deleted:
            left = counted(len(self.deleted), "part")
            lines.append(f"{left} older than WALSH_LOG_DAYS, which runs have deleted since")
        lines += [f"changed: {name}" for name in self.changed[:_MOST_NAMED]]
        if len(self.changed) > _MOST_NAMED:
            lines.append(f"… and {len(self.changed) - _MOST_NAMED} more have changed")
        return lines


def read_attestation(name: str) -> dict[str, Any]:
    """Read an attestation. Raises CommandError for a file that is none, or was changed."""
    from jsonschema import Draft202012Validator

    try:
        attestation = json.loads(Path(name).read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{name} is no JSON: {error}") from error
    schema = (files("walsh_scrapy.tools.attest") / "attestation.schema.json").read_text("utf-8")
    wrong = next(Draft202012Validator(json.loads(schema)).iter_errors(attestation), None)
    if wrong is not None:
        why = f"{wrong.json_path}: {cut(wrong.message, 200)}"
        raise CommandError(f"{name} is no attestation ({FORMAT}): {why}")
    rest = {member: value for member, value in attestation.items() if member != "seal"}
    if seal(rest) != attestation["seal"]:
        raise CommandError(f"{name} was changed after it was written: its seal does not fit")
    return dict(attestation)


def compare(log: Log, record: Mapping[str, Any], now: float) -> Comparison:
    """Compare the record with an attestation's ``record``; ``now`` is in epoch seconds.

    A day of the log that a run may have deleted since, because it is older than `WALSH_LOG_DAYS`,
    counts as deleted if it has fewer rows than were judged.
    """
    bounds = Bounds(**record["bounds"])
    found = digests_of(log, bounds)
    pruned_until = log.pruned_until(bounds.until, now)
    comparison = Comparison()
    for table, periods in record["digests"].items():
        for period in sorted(periods.keys() | found[table].keys()):
            judged = Digest(**periods[period]) if period in periods else Digest(0, "")
            left = found[table].get(period, Digest(0, ""))
            name = table if period == "all" else f"{table} of {period}"
            if left == judged:
                comparison.same += 1
            elif table in _LOG and begin_of(period) < pruned_until and left.rows < judged.rows:
                comparison.deleted.append(name)
            else:
                comparison.changed.append(name)
    return comparison
