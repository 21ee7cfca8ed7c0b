"""Digests of the judged record, by which it can be recognised later (`--verify`).

Each day of the log and each month of the entries has a digest of its own. So what becomes too old
and is deleted changes no other digest, and neither does what is written later.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.state.log import Bounds, Log

_Row = TypeVar("_Row", bound="Sequence[Any]")
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_DAY: Final = 86_400.0


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


def _date(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()
