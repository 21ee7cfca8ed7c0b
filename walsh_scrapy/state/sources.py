"""Declared sources, visited sources, and due sources (R7, R8; decisions 17, 20, 21, 40).

    a sources file -> `sync` -> declared: one row per source of each file
    a visit -> `outcome` -> sources: one row per visited source, by the number of its URL
    declared -> `hosts` with due sources, `page` of those of a host

Sync, visits and the operator write different columns. Only `declared` repeats the facts that make a
source due (`note`), so that one index has the hosts with work. A visit owns its host, so the rows
of its source stay true until its outcome is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from sqlalchemy import (
    BigInteger,
    Double,
    and_,
    bindparam,
    case,
    func,
    literal,
    not_,
    or_,
    select,
    tuple_,
    union,
    update,
)

from walsh_scrapy.policy.backoff import MAX_WAIT_SECONDS
from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.frontier import HostWork
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.sources.source import Kind, Source, declared_urls
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.entries import insert_unseen
from walsh_scrapy.state.records import (
    REFUSED,
    SourceRecord,
    columns_of,
    record_of,
    row_of,
    upsert,
)
from walsh_scrapy.state.tables import Due, declared, indexes, sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection, Select, Table

    from walsh_scrapy.state.entries import EntryRecord
    from walsh_scrapy.state.records import LlmsTxtRecord

#: Sources read at once.
PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Selection:
    """Sources of one file: those of a kind whose URL, name or tags contain ``only``."""

    file: int
    kind: Kind
    only: str = ""

    @property
    def given(self) -> dict[str, Any]:
        """The parameters of `_CHOSEN`."""
        return {"of_file": self.file, "of_kind": self.kind}

    def has(self, source: Source) -> bool:
        """Return True if a source of the file is one of them."""
        wanted = self.only.casefold()
        texts = (source.url, source.name or "", *source.tags)
        return source.kind == self.kind and any(wanted in text.casefold() for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """The moment of a run: sources that become due later belong to the next run."""

    began: float  #: epoch seconds
    min_revisit: float  #: seconds
    force: bool = False  #: each source is due that is not gone

    def given(self, now: float) -> dict[str, float]:
        """Return the parameters of a query for due sources as of ``now``."""
        return {"began": self.began, **_given(self.min_revisit, now)}


class DueSource(NamedTuple):
    """A source that is due, and its row under its declared URL."""

    source: Source
    record: SourceRecord | None  #: None before its first visit


class KnownSource(NamedTuple):
    """The row of a source, its due time, and the reason, in a word of `Due`."""

    record: SourceRecord
    at: float
    rule: str


#: Where a page of sources begins: the due time of the last one before it, and its number.
PagePosition = tuple[float, int]
#: Sources of a host, and where the following ones begin, if there are any.
SourcePage: TypeAlias = tuple[list[DueSource], PagePosition | None]
#: Before the first source.
FIRST_POSITION: Final[PagePosition] = (-math.inf, -1)


@dataclass
class SourceCounts:
    """The number of due sources, and of the others."""

    due: int = 0
    later: int = 0
    gone: int = 0
    next_due: float = NEVER  #: when the first of the others is due


_C, _S = declared.c, sources.c
#: The columns of a declared source, as `source_of` takes them.
SOURCE: Final = tuple(_C[name] for name in ("url", "kind", "every", "delay", "details"))
_COLUMNS: Final = columns_of(SourceRecord, sources)
_CHOSEN: Final = (_C.file == bindparam("of_file"), _C.kind == bindparam("of_kind"))
_COUNT: Final = select(func.count()).select_from(declared)
_NOW: Final = bindparam("now", type_=Double)
_BEGAN: Final = bindparam("began", type_=Double)
_OF_KEY: Final = _S.url_key == bindparam("of")
_FETCHED_AT: Final = select(_S.visited_at).where(_OF_KEY)
_UPDATE: Final = update(sources).where(_OF_KEY).returning(_S.resumed)
_FACTS: Final = ("visited_at", "not_before", "failures", "unconnected")
_NOTE: Final = (
    update(declared)
    .where(_C.url_key == bindparam("of"))
    .values({name: bindparam(f"new_{name}") for name in (*_FACTS, "host")})
)
_NO_VALIDATORS: Final[dict[str, Any]] = {
    "validator_url": None,
    "etag": None,
    "last_modified": None,
}
_FIND_DECLARED: Final = select(*SOURCE).where(
    _C.url_key == bindparam("of"), _C.file == bindparam("within")
)


class SourceStore(Store):
    """Finds declared and visited sources, and writes the results of their visits."""

    # ---- visited sources ----

    def find(self, url: str) -> SourceRecord | None:
        """Return the row of a source, however it is spelled; None before its first visit."""
        record = self._find(SourceRecord, sources, url_key(url))
        return record and record.with_url(record.url)

    def all(self) -> list[SourceRecord]:
        """Return the row of every source ever visited, whether it is still declared or not."""
        return [_record(row) for row in self._all(select(*_COLUMNS))]

    def urls(self) -> dict[str, None]:
        """Return the URL of every source ever visited, whether it is still declared or not."""
        return dict.fromkeys(url for (url,) in self._all(select(_S.url)))

    def known_urls(self) -> dict[str, None]:
        """Return the URL of every source that is declared or was ever visited."""
        return dict.fromkeys(url for (url,) in self._all(union(select(_C.url), select(_S.url))))

    def due(self, url: str, least: float, now: float) -> KnownSource | None:
        """Return the row of a source, and when it is due; ``least`` is in seconds."""
        return next(self._due(least, now, _S.url_key == url_key(url)), None)

    def in_trouble(self) -> tuple[set[int], set[int]]:
        """Return the keys of the sources whose last visit failed, and of those that are refused."""
        key = select(_S.url_key)
        with self._database.snapshot() as connection:
            failing = set(connection.scalars(key.where(_S.failures > 0)))
            return failing, set(connection.scalars(key.where(_S.outcome == REFUSED)))

    def _due(
        self, least: float, now: float, *conditions: ColumnElement[bool]
    ) -> Iterator[KnownSource]:
        due = _due(sources, literal(0.0, Double))
        found = select(*_COLUMNS, *due).where(*conditions)
        for *row, at, rule in self._all(found, **_given(least, now)):
            yield KnownSource(_record(row), at, rule)

    # ---- visits and the operator ----

    def outcome_writer(
        self,
        known: SourceRecord | None,
        record: SourceRecord,
        found: Sequence[EntryRecord] = (),
        llmstxt: LlmsTxtRecord | None = None,
        *,
        host: str,
    ) -> Callable[[Connection], frozenset[str]]:
        """Return a function that writes the outcome of a visit, and returns its new entries' keys.

        ``known`` is the row as the visit began, None before the first one; ``host`` paces the next
        visit. Validators and the entries of their response are written together, so that a crash at
        any point neither loses nor repeats an entry (R7, decision 17). A source that has its number
        no more is dropped, with its entries. A second call writes nothing twice, and returns the
        same.

        In a transaction it raises RefusedValues for values that the database does not accept, such
        as an entry of a source without a row.
        """
        key, attempts = {"of": url_key(record.url)}, list[None]()
        row = row_of(record)
        del row["resumed"]  # which is the operator's

        def write(connection: Connection) -> frozenset[str]:
            facts = {name: row[name] for name in _FACTS}
            if known is None:
                upsert(connection, sources, {**row, "url_key": key["of"]})
            elif (resumed := connection.scalar(_UPDATE, {**row, **key})) is None:
                return frozenset()  # the file declares it where it moved
            elif resumed != known.resumed:  # during the visit
                facts["failures"] = min(record.failures, 1)
                forgotten = _NO_VALIDATORS | {"failures": facts["failures"]}
                if record.failures:
                    forgotten["failing_since"] = record.visited_at
                connection.execute(update(sources).where(_OF_KEY).values(forgotten), key)
            noted = {f"new_{name}": value for name, value in (*facts.items(), ("host", host))}
            connection.execute(_NOTE, {**noted, **key})
            if llmstxt is not None:
                upsert(connection, indexes, row_of(llmstxt))
            is_unread = known is None or not known.format
            # An earlier attempt may have lost only the answer to its COMMIT.
            is_rerun = bool(attempts)
            attempts.append(None)
            return insert_unseen(connection, found, backfill=is_unread, is_rerun=is_rerun)

        return write

    @staticmethod
    def is_written(record: SourceRecord) -> Callable[[Connection], bool]:
        """Return a function that checks whether a record is of the last visit of its source."""
        key = {"of": url_key(record.url)}
        return lambda connection: connection.scalar(_FETCHED_AT, key) == record.visited_at

    def resume(self, url: str) -> bool:
        """Forget the validators of a source, so that its next visit reads its document as a whole.

        A source that is gone (410) or failing becomes due, and its count of failures 0; return
        False for any other, which stays due as it is.
        """
        key = {"of": url_key(url)}
        of_this = update(sources).where(_OF_KEY)
        anew = of_this.values({**_NO_VALIDATORS, "resumed": _S.resumed + 1})
        due = {"not_before": 0.0, "failures": 0, "failing_since": None}

        def write(connection: Connection) -> bool:
            connection.execute(anew, key)
            in_trouble = of_this.where(_S.failures > 0).values(due)
            is_resumed = connection.execute(in_trouble, key).rowcount == 1
            repeat_facts(connection, _C.url_key == key["of"])
            return is_resumed

        return self._database.write(write)

    # ---- declared sources ----

    def owner(self, chosen: Selection, url: str) -> Source | None:
        """Return a source that declares this URL: as its page, or as the llms.txt of its host."""
        rows = self._all(_FIND_DECLARED, of=url_key(url), within=chosen.file)
        source = next((source_of(*row) for row in rows), None)
        if source and source.url == url and chosen.has(source):
            return source
        if chosen.kind != "llms" or not url.endswith("/llms.txt"):
            return None
        is_there = _C.url.startswith(url.removesuffix("llms.txt"), autoescape=True)
        rows = self._all(select(*SOURCE).where(*_CHOSEN, is_there).limit(PAGE), **chosen.given)
        owners = (source for source in (source_of(*row) for row in rows) if chosen.has(source))
        return next((each for each in owners if url in declared_urls(each)), None)

    def iterate(self, chosen: Selection) -> Iterator[Source]:
        """Yield all chosen sources, a page at a time."""
        page = select(_C.url_key, *SOURCE).where(*_CHOSEN).order_by(_C.url_key).limit(PAGE)
        rows = self._all(page, **chosen.given)
        while rows:
            found = (source_of(*values) for _, *values in rows)
            yield from (each for each in found if not chosen.only or chosen.has(each))
            rest = page.where(_C.url_key > rows[-1][0])
            rows = self._all(rest, **chosen.given) if len(rows) == PAGE else ()

    def count(self, chosen: Selection) -> int:
        """Return the number of chosen sources."""
        if chosen.only:
            return sum(1 for _ in self.iterate(chosen))
        return int(self._all(_COUNT.where(*_CHOSEN), **chosen.given)[0][0])

    def total(self, file: int) -> int:
        """Return the number of sources that a file declares."""
        return int(self._all(_COUNT.where(_C.file == file))[0][0])

    # ---- due sources ----

    def hosts(self, chosen: Selection, terms: RunTerms) -> tuple[list[HostWork], SourceCounts]:
        """Return the hosts that have due sources, and the numbers of due and other sources."""
        due, given = _due(declared, _C.every), {**chosen.given, **terms.given(terms.began)}
        is_wanted = _is_wanted(declared, due, force=terms.force)
        columns = (_C.host, due.at, case((is_wanted, 1), else_=0))
        if chosen.only:  # one by one
            each = select(*columns, *SOURCE).where(*_CHOSEN).order_by(_C.host)
            rows = self._all(each, **given)
            return _counted(row[:3] for row in rows if chosen.has(source_of(*row[3:])))
        by_host = select(_C.host, func.count(), func.min(due.at)).where(*_CHOSEN, is_wanted)
        is_gone = _C.not_before >= NEVER
        later = case((not_(or_(is_gone, is_wanted)), due.at))
        others = select(func.count(), func.sum(case((is_gone, 1), else_=0)), func.min(later))
        work = [HostWork(*row) for row in self._all(by_host.group_by(_C.host), **given)]
        ((count, gone, next_due),) = self._all(others.where(*_CHOSEN), **given)
        number = sum(each.sources for each in work)
        counts = SourceCounts(number, count - (gone or 0) - number, gone or 0)
        return work, counts if next_due is None else replace(counts, next_due=next_due)

    @staticmethod
    def page_reader(
        chosen: Selection,
        terms: RunTerms,
        host: str,
        now: float,
        after: PagePosition,
        most: int = PAGE,
    ) -> Callable[[Connection], SourcePage]:
        """Return a function that reads due sources of a host, and the start of the next page.

        Those that are due longest come first. At most ``most`` are read, as of ``now`` in epoch
        seconds.
        """
        place = {"paced": host, "since": after[0], "after": after[1], "most": most + 1}
        given = {**chosen.given, **terms.given(now), **place}

        def read(connection: Connection) -> SourcePage:
            rows = connection.execute(_page(force=terms.force), given).all()
            following = (rows[most - 1][0], rows[most - 1][1]) if len(rows) > most else None
            return _due_sources(rows[:most], chosen), following

        return read


def _due_sources(rows: Sequence[Sequence[Any]], chosen: Selection) -> list[DueSource]:
    """Return the chosen sources of the rows of `_page`."""
    found = []
    for _, _, is_due, *values in rows:
        source, known = source_of(*values[: len(SOURCE)]), values[len(SOURCE) :]
        if is_due and (not chosen.only or chosen.has(source)):
            record = _record(known).with_url(source.url) if known[0] else None
            found.append(DueSource(source, record))
    return found


class DeclaredSources(Collection[Source]):
    """The sources that one run may request; all of them are in the state, and none in memory."""

    def __init__(self, store: SourceStore, chosen: Selection) -> None:
        self.chosen = chosen
        self._store = store

    def __iter__(self) -> Iterator[Source]:
        return self._store.iterate(self.chosen)

    def __len__(self) -> int:
        return self._store.count(self.chosen)

    def __contains__(self, source: object) -> bool:
        return isinstance(source, Source) and self.owner(source.url) == source

    def owner(self, url: str) -> Source | None:
        """Return a source that declares this URL, or None."""
        return self._store.owner(self.chosen, url)


def repeat_facts(connection: Connection, *conditions: ColumnElement[bool]) -> None:
    """Repeat in rows of `declared` the facts that decide when their sources are due."""
    facts = {name: _S[name] for name in _FACTS}
    known = update(declared).where(_S.url_key == _C.url_key, *conditions)
    connection.execute(known.values(facts))


def source_of(url: str, kind: Kind, every: float, delay: float | None, details: str) -> Source:
    """Return the source of a row of ``SOURCE``."""
    name, tags, page, folders = json.loads(details) if details else (None, (), None, ())
    return Source(
        url,
        kind,
        name,
        tuple(tags),
        timedelta(seconds=every) if every else None,
        timedelta(seconds=delay) if delay else None,
        page,
        tuple(folders),
    )


def _record(row: Sequence[Any]) -> SourceRecord:
    """Return the record of a row; a move to its declared URL is over."""
    record = record_of(SourceRecord, row)
    return record.with_url(record.url)


def _given(least: float, now: float) -> dict[str, float]:
    """Return the parameters of `_due`."""
    return {"revisit": min(least, MAX_WAIT_SECONDS), "now": now}


def _due(known: Table, every: ColumnElement[float]) -> Due:
    return Due.of(known, every, bindparam("revisit", type_=Double), _NOW)


def _is_wanted(known: Table, due: Due, *, force: bool) -> ColumnElement[bool]:
    """Whether a source is to be visited: with ``force`` each one that is not gone.

    Sources that any worker visited since the run began are done.
    """
    if not force:
        return due.at <= _BEGAN
    at = known.c.visited_at
    return and_(due.at < NEVER, or_(at.is_(None), at <= _BEGAN, at > _NOW))


@cache
def _page(*, force: bool) -> Select[Any]:
    """Return the query for a page of the due sources of a host; it runs at each visit."""
    due = _due(declared, _C.every)
    mine = (*_CHOSEN, _C.host == bindparam("paced"), _is_wanted(declared, due, force=force))
    # The index alone has these sources, even of a host that has very many.
    first = select(_C.url_key, due.at.label("since")).where(*mine)
    place = bindparam("since", type_=Double), bindparam("after", type_=BigInteger)
    first = first.where(tuple_(due.at, _C.url_key) > tuple_(*place))
    page = first.order_by(due.at, _C.url_key).limit(bindparam("most")).subquery()
    is_own = and_(_C.url_key == page.c.url_key, _C.file == bindparam("of_file"))
    joined = page.join(declared, is_own).outerjoin(sources, _S.url_key == _C.url_key)
    # A sync and a visit that ended at once may have written an earlier time in the index.
    truth = _is_wanted(sources, _due(sources, _C.every), force=force)
    is_true = case((or_(_S.url_key.is_(None), truth), 1), else_=0)
    columns = (page.c.since, page.c.url_key, is_true, *SOURCE, *_COLUMNS)
    return select(*columns).select_from(joined).order_by(page.c.since, page.c.url_key)


def _counted(rows: Iterable[Sequence[Any]]) -> tuple[list[HostWork], SourceCounts]:
    """Count sources by host, when each is due, and whether it is wanted."""
    work, counts = dict[str, HostWork](), SourceCounts()
    for host, at, is_wanted in rows:
        if is_wanted:
            known = work.get(host, HostWork(host, 0, at))
            work[host] = HostWork(host, known.sources + 1, min(known.since, at))
            counts.due += 1
        elif at == NEVER:
            counts.gone += 1
        else:
            counts.later += 1
            counts.next_due = min(counts.next_due, at)
    return list(work.values()), counts
