"""Which days of a record were judged before, and are as they were (decisions 33 and 35).

A day of the log, in UTC, that is over is judged once, and so is a month of entries. What was found
is kept with the digests of its rows and with the terms by which it was judged. A later audit makes
the digests anew: what is the same counts as it was judged. From a day on that is not, every day is
judged again, because a pause or a hold begins in the days before. What is judged by a part of the
record that was deleted since, as too old, stays as it was judged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.wording import format_day

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from walsh_scrapy.policy.audit.record import Basis, Bot

#: Characters of the name of a month: `2026-05`.
_MONTH: Final = 7
#: Tables whose days are judged together. Entries are judged by month, each for itself.
LOG: Final = ("requests", "denials")


class Digest(NamedTuple):
    """The rows of one period: how many, and the SHA-256 of them as lines of JSON."""

    rows: int
    sha256: str


#: The digests of one period, by table; a table without rows is not in it.
PeriodDigests: TypeAlias = "dict[str, Digest]"


class Judgement(NamedTuple):
    """What was found in a day or a month, and what that depends on."""

    period: str  #: `2026-05-23` or `2026-05`, in UTC
    terms: str  #: the SHA-256 of what it was judged by, beside the rows
    digests: str  #: of its rows: `PeriodDigests` as JSON
    requests: int  #: the last row of the log when it was judged, by its id
    denials: int
    found: str  #: a `Tally` as JSON
    judged_at: float  #: epoch seconds
    #: When it was first noticed that rows of a day were changed or deleted after it was judged.
    changed_at: float | None

    def rows(self) -> PeriodDigests:
        """Return the digests."""
        return {table: Digest(*given) for table, given in json.loads(self.digests).items()}


_day: Final = lru_cache(maxsize=1000)(format_day)


def day_of(moment: float) -> str:
    """Return the day of a moment, in epoch seconds: `2026-05-23`, in UTC."""
    return _day(int(moment // DAY))


def month_of(moment: float) -> str:
    """Return the month of a moment, in epoch seconds: `2026-05`, in UTC."""
    return day_of(moment)[:_MONTH]


def begin_of(period: str) -> float:
    """Return the epoch second at which a day or a month begins."""
    first = period if len(period) > _MONTH else f"{period}-01"
    return datetime.fromisoformat(first).replace(tzinfo=UTC).timestamp()


def end_of(period: str) -> float:
    """Return the epoch second at which a day or a month ends."""
    begin = begin_of(period)
    if len(period) > _MONTH:
        return begin + DAY
    later = datetime.fromtimestamp(begin, UTC) + timedelta(days=31)
    return later.replace(day=1).timestamp()


def is_over(period: str, until: float) -> bool:
    """Return True if no row of a period is still to come at a moment, in epoch seconds."""
    return end_of(period) + CLOCK_SKEW <= until


class Terms:
    """What a period is judged by beside its rows: the rules of the judge, and its `Basis`.

    ``rules`` names the version of the judge. Where sources have moved to is not in it, nor which
    copies are kept and where the record begins: what is lost of these shows less later.
    """

    def __init__(self, rules: str, bot: Bot, basis: Basis) -> None:
        self._rules = rules
        self._basis = basis
        paced_by = sorted({run.facts.pace_by for run in basis.runs.values()})
        self._general = [rules, bot, paced_by, sorted(basis.list_hosts)]

    def of(self, period: str) -> str:
        """Return the SHA-256 of the terms of a period.

        Of runs and of the operator's acts these are those that were known at its end.
        """
        begin, end = begin_of(period), end_of(period)
        if len(period) == _MONTH:  # an entry is judged by itself
            return sha256(self._rules.encode()).hexdigest()
        digest = sha256(json.dumps(self._general).encode())
        for number, run in self._basis.runs.items():
            if run.begun <= end:
                ended = run.ended if run.ended is not None and run.ended <= end else None
                digest.update(json.dumps([number, run._replace(ended=ended)]).encode())
        acts = [act for act in self._basis.acts if act.at <= end]
        digest.update(json.dumps([acts, self._basis.clocks.spans(begin, end)]).encode())
        return digest.hexdigest()


@dataclass(slots=True)
class Review:
    """What is left of what was judged before."""

    same: set[str] = field(default_factory=set)  #: periods that count as they were judged
    changed: set[str] = field(default_factory=set)  #: rows were changed or deleted since


def review(
    kept: Iterable[Judgement],
    digests: Mapping[str, PeriodDigests],
    terms: Callable[[str], str],
    *,
    pruned_until: float,
    as_judged: Callable[[Judgement], PeriodDigests],
) -> Review:
    """Compare what was judged before with the digests of the record, by their periods.

    Of a day that begins before ``pruned_until``, in epoch seconds, rows may be deleted as too old.
    ``as_judged`` returns the digests of a day without the rows that were written since.
    """
    known = {judgement.period: judgement for judgement in kept}
    found, is_whole = Review(), True
    for period in sorted(known.keys() | digests.keys()):
        is_month = len(period) == _MONTH
        judged, now = known.get(period), digests.get(period, {})
        if judged is None:
            is_whole = is_whole and is_month
        elif judged.rows() == now:
            is_same = judged.terms == terms(period)
            if is_same and (is_whole or is_month):
                found.same.add(period)
            is_whole = is_whole and (is_same or is_month)
        elif is_month or not _is_cut(judged, now, pruned_until):
            is_whole = is_whole and is_month
            if is_month or as_judged(judged) != judged.rows():
                found.changed.add(period)
    return found


def _is_cut(judged: Judgement, now: PeriodDigests, pruned_until: float) -> bool:
    """Return True if a day is old, and the tables that differ have fewer rows than were judged."""
    if begin_of(judged.period) >= pruned_until:
        return False
    before, none = judged.rows(), Digest(0, "")
    tables = before.keys() | now.keys()
    return all(
        now.get(table, none).rows < before.get(table, none).rows
        for table in tables
        if now.get(table) != before.get(table)
    )


def likely_same(kept: Collection[Judgement], terms: Callable[[str], str]) -> set[str]:
    """Return which periods count as they were judged if no row has changed since."""
    digests = {judgement.period: judgement.rows() for judgement in kept}
    return review(kept, digests, terms, pruned_until=0.0, as_judged=Judgement.rows).same
