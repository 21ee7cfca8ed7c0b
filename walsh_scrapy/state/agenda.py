"""What is due of the declared sources: which hosts have work, and their sources a page at a time.

The question "what is due?" is answered by one pass over an index of `declared`, with the settings
of now as values (R8, decision 20). `SourceRecord.due` decides about what SQL cannot say: hours and
days to skip, and a text that sources are chosen by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    Double,
    and_,
    case,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    tuple_,
)

from walsh_scrapy.policy.backoff import LONGEST_SECONDS
from walsh_scrapy.policy.freshness import CLOCK_SKEW, LONGEST_REVISIT, NEVER
from walsh_scrapy.policy.frontier import HostWork
from walsh_scrapy.state.declared import PAGE, SOURCE, Selection, source_of
from walsh_scrapy.state.rows import record_of
from walsh_scrapy.state.sourcerecord import COLUMNS, SourceRecord
from walsh_scrapy.state.tables import declared, sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import ColumnElement, Select

    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What decides beside the record of a source whether it is due. Durations are seconds."""

    began: float  #: the moment for which the question is asked, in epoch seconds
    min_revisit: float
    force: bool = False  #: each source is due that is not gone


class DueSource(NamedTuple):
    """A source that is due, since when, and what is known of it."""

    source: Source
    record: SourceRecord
    host: str  #: as it is paced
    since: float
    position: float  #: in the file


class Place(NamedTuple):
    """Where a page of sources ended."""

    since: float
    position: float


#: Before the first source.
FIRST: Final = Place(-math.inf, -math.inf)


@dataclass
class Counts:
    """How many sources are due, and the others."""

    due: int = 0
    later: int = 0
    gone: int = 0
    next_due: float = NEVER  #: when the first of the others is due


_C: Final = declared.c
#: Of several records of a source first the one of its URL, then that visited last.
_BEST_FIRST: Final = (case((sources.c.url == _C.url, 0), else_=1), sources.c.fetched_at.desc())


def _larger(one: ColumnElement[float], other: ColumnElement[float]) -> ColumnElement[float]:
    return case((one > other, one), else_=other)


class Rule:
    """`policy.freshness.due` in SQL, as of ``now``, but for hours and days to skip.

    So it is never later than that.
    """

    def __init__(self, terms: Terms, now: float) -> None:
        self._began = literal(terms.began, Double)
        revisit = literal(min(terms.min_revisit, LONGEST_SECONDS), Double)
        longest = literal(LONGEST_REVISIT, Double)
        operator = _larger(revisit, _C.every)
        interval = _larger(operator * _C.growth, _C.asked)
        limit = _larger(longest, operator)
        is_at_once = or_(_C.fetched_at.is_(None), _C.fetched_at > literal(now + CLOCK_SKEW, Double))
        is_over = self._is_over
        #: Whether it is due.
        self.is_due = or_(
            is_at_once,
            and_(is_over(revisit * _C.growth), is_over(_C.every * _C.growth), is_over(_C.asked)),
            and_(is_over(longest), is_over(revisit), is_over(_C.every)),
        )
        #: When a source is due that is not due at once.
        self.later = _C.fetched_at + case((interval < limit, interval), else_=limit)
        #: The same of every source: 0 for those that are due at once.
        self.since = case((is_at_once, literal(0.0, Double)), else_=self.later)
        # What was visited since the run began is done, by whichever worker.
        is_undone = or_(
            *(_C.fetched_at.is_(None), _C.fetched_at <= self._began),
            _C.fetched_at > literal(now, Double),
        )
        #: Whether a source is to be asked for: with ``force`` each one that is not gone.
        self.is_wanted = and_(not_(_C.is_gone), is_undone if terms.force else self.is_due)

    def _is_over(self, seconds: ColumnElement[float]) -> ColumnElement[bool]:
        """Whether so many seconds have passed since the last visit."""
        return _C.fetched_at + seconds <= self._began


class Agenda:
    """What is due of the sources that one run may ask for; each method is a few short reads.

    ``terms`` are those of the begin of the run: what becomes due later belongs to the next run.
    """

    def __init__(self, database: Database, chosen: Selection, terms: Terms) -> None:
        self._database = database
        self._chosen = chosen
        self._terms = terms

    def hosts(self) -> tuple[list[HostWork], Counts]:
        """Return the hosts that have due sources, and how many sources are due and are not."""
        work: dict[str, HostWork] = {}
        counts = Counts()
        if not self._chosen.only:
            work, counts = self._reckoned()
        for found in self._each():
            if found.since == NEVER:
                counts.gone += 1
            elif not self._is_due(found):
                counts.later += 1
                counts.next_due = min(counts.next_due, found.since)
            else:
                counts.due += 1
                _add(work, found)
        return list(work.values()), counts

    def sources(
        self, hosts: Sequence[str], now: float, after: Place, most: int = PAGE
    ) -> tuple[list[DueSource], Place | None]:
        """Return due sources of these hosts, and where the next page begins, None for nowhere.

        Those that are due longest come first. At most ``most`` are read, as of ``now`` in epoch
        seconds; some of them may not be due.
        """
        rule = Rule(self._terms, now)
        mine = (*self._chosen.where, _C.host.in_(hosts), rule.is_wanted)
        # The index alone says which sources these are, also of a host that has very many.
        first = select(_C.url_key, rule.since.label("since"), _C.position).where(*mine)
        first = first.order_by(rule.since, _C.position).limit(most)
        if after != FIRST:
            last = (literal(after.since, Double), literal(after.position, Double))
            first = first.where(tuple_(rule.since, _C.position) > tuple_(*last))
        of_page = first.subquery()
        is_own = and_(_C.url_key == of_page.c.url_key, _C.file == self._chosen.file)
        page = _joined(of_page.c.since).join(of_page, is_own)
        order = (of_page.c.since, of_page.c.position, *_BEST_FIRST)
        rows = self._read(page.order_by(*order))
        due = [each for each in self._judged(rows, now) if self._is_due(each)]
        due.sort(key=attrgetter("since"))
        return due, Place(*rows[-1][2:4]) if len(rows) >= most else None

    def _reckoned(self) -> tuple[dict[str, HostWork], Counts]:
        """Return what one pass of SQL says of the sources whose feeds skip nothing."""
        rule = Rule(self._terms, self._terms.began)
        mine = [*self._chosen.where, _C.has_skips == false()]
        by_host = (
            select(_C.host, func.count(), func.min(rule.since), func.min(_C.position))
            .where(*mine, rule.is_wanted)
            .group_by(_C.host)
        )
        others = select(
            func.count(),
            func.sum(case((_C.is_gone, 1), else_=0)),
            func.min(case((or_(_C.is_gone, rule.is_due), None), else_=rule.later)),
        ).where(*mine)
        work = {row[0]: HostWork(*row) for row in self._read(by_host)}
        ((count, gone, next_due),) = self._read(others)
        due = sum(each.sources for each in work.values())
        gone = gone or 0
        later = count - gone - due
        return work, Counts(due, later, gone, NEVER if next_due is None else next_due)

    def _each(self) -> Iterator[DueSource]:
        """Yield each source that SQL alone cannot decide about, due or not."""
        began = self._terms.began
        order: list[ColumnElement[Any]] = [_C.url_key]
        wanted = _joined(Rule(self._terms, began).since).where(*self._chosen.where)
        if not self._chosen.only:  # few have feeds that skip anything: an index has them
            order = [_C.host, _C.url_key]
            wanted = wanted.where(_C.has_skips == true())
        page = wanted.order_by(*order, *_BEST_FIRST).limit(PAGE)
        rows = self._read(page)
        while rows:
            yield from self._judged(rows, began)
            if len(rows) < PAGE:
                return
            key, host = rows[-1][:2]
            last = [literal(key)] if len(order) == 1 else [literal(host), literal(key)]
            rows = self._read(page.where(tuple_(*order) > tuple_(*last)))

    def _judged(self, rows: Iterable[Sequence[Any]], now: float) -> Iterator[DueSource]:
        """Yield the source of each row with its exact due time."""
        last = None
        for key, host, _since, position, *values in rows:
            source = source_of(*values[: len(SOURCE)])
            known = values[len(SOURCE) :]
            if key == last or (self._chosen.only and not self._chosen.has(source)):
                continue
            last = key
            record = SourceRecord(url=source.url, kind=source.kind)
            if known[0] is not None:
                record = record_of(SourceRecord, known)
            due = record.due(source.revisit_interval(self._terms.min_revisit), now)
            yield DueSource(source, record, host, due.at, position)

    def _is_due(self, found: DueSource) -> bool:
        return found.since <= self._terms.began or (self._terms.force and found.since < NEVER)

    def _read(self, wanted: Select[*tuple[Any, ...]]) -> Sequence[Sequence[Any]]:
        return self._database.read(lambda connection: connection.execute(wanted).all())


def _joined(since: ColumnElement[float]) -> Select[*tuple[Any, ...]]:
    """Select sources with their records."""
    columns = (_C.url_key, _C.host, since, _C.position, *SOURCE, *COLUMNS)
    record = sources.c.url_key == _C.url_key
    return select(*columns).select_from(declared.outerjoin(sources, record))


def _add(work: dict[str, HostWork], found: DueSource) -> None:
    """Count one more due source of a host."""
    known = work.get(found.host, HostWork(found.host, 0, found.since, found.position))
    since, position = min(known.since, found.since), min(known.position, found.position)
    work[found.host] = HostWork(found.host, known.sources + 1, since, position)
