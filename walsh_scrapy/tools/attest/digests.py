"""Digests of the judged record, by which it can be recognised later (`--verify`).

Each day of the log and each month of the entries has a digest of its own. So what becomes too old
and is deleted changes no other digest, and neither does what is written later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from walsh_scrapy.policy.wording import count_of, cut
from walsh_scrapy.state.auditrecord import Bounds
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.state.log import Log

#: The version of the JSON.
FORMAT: Final = "walsh-research-attestation/v1"

_Row = TypeVar("_Row", bound="Sequence[Any]")
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_DAY: Final = 86_400.0
_LOG: Final = ("requests", "denials")
#: Changed periods that are named; others are counted.
_MOST_NAMED: Final = 10


class Digest(NamedTuple):
    """The rows of one period: how many, and the SHA-256 of them as lines of JSON."""

    rows: int
    sha256: str


#: The digests of the record: by table, then by period: a day, a month, or "all".
Digests: TypeAlias = "dict[str, dict[str, Digest]]"


class Digester:
    """Takes rows in their order, and makes a digest of each period."""

    def __init__(self, period: Callable[[float], str]) -> None:
        self._period = period
        self._found: dict[str, tuple[int, Any]] = {}

    def passed(self, rows: Iterable[_Row], moment: int | None = None) -> Iterator[_Row]:
        """Yield the rows unchanged; ``moment`` is the column with their epoch second."""
        name, count, digest = "", 0, sha256()
        for row in rows:
            period = self._period(0.0 if moment is None else row[moment])
            if period != name:
                self._keep(name, count, digest)
                name, (count, digest) = period, self._found.get(period, (0, sha256()))
            count += 1
            digest.update(f"{_encode(row)}\n".encode())
            yield row
        self._keep(name, count, digest)

    def digests(self) -> dict[str, Digest]:
        """Return the digest of each period that has rows."""
        return {
            name: Digest(count, digest.hexdigest()) for name, (count, digest) in self._found.items()
        }

    def _keep(self, name: str, count: int, digest: Any) -> None:  # noqa: ANN401 - of hashlib
        if name:
            self._found[name] = count, digest


def by_day() -> Digester:
    """Return a digester of days, in UTC."""
    days: dict[int, str] = {}

    def day(moment: float) -> str:
        number = int(moment // _DAY)
        if number not in days:
            days[number] = _date(number * _DAY)
        return days[number]

    return Digester(day)


def by_month() -> Digester:
    """Return a digester of months, in UTC."""
    return Digester(lambda moment: _date(moment)[:7])


def whole() -> Digester:
    """Return a digester of all rows."""
    return Digester(lambda _: "all")


def begin_of(day: str) -> float:
    """Return the epoch second at which a day begins."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def digests_of(log: Log, bounds: Bounds) -> Digests:
    """Read the judged record once more, and return its digests."""
    requests, denials, entries = by_day(), by_day(), by_month()
    for _ in requests.passed(log.requests_by_time(bounds), moment=1):
        pass
    for _ in denials.passed(log.denials_by_time(bounds), moment=1):
        pass
    for _ in entries.passed(log.entries(bounds), moment=6):
        pass
    return with_small_tables(log, bounds, requests, denials, entries)


def with_small_tables(
    log: Log,
    bounds: Bounds,
    requests: Digester,
    denials: Digester,
    entries: Digester,
) -> Digests:
    """Return the digests of rows that have passed, and those of runs and acts."""
    runs, acts = whole(), whole()
    for _ in runs.passed(log.run_rows(bounds)):
        pass
    for _ in acts.passed(log.acts(bounds)):
        pass
    named = {
        "requests": requests,
        "denials": denials,
        "entries": entries,
        "runs": runs,
        "acts": acts,
    }
    return {table: digester.digests() for table, digester in named.items()}


def seal(record: Mapping[str, object]) -> str:
    """Return the SHA-256 of a JSON object, whatever the order of its members."""
    return sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(slots=True)
class Comparison:
    """What is left of the judged record: names of periods, such as `requests of 2026-05-23`."""

    same: int = 0  #: periods that are as they were judged
    deleted: list[str] = field(default_factory=list)  #: too old: all or part may be deleted
    changed: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return what was found, in words."""
        lines = [f"{count_of(self.same, 'part')} of the record as judged"]
        if self.deleted:
            left = count_of(len(self.deleted), "part")
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


def _date(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()
