"""Sources: which are declared, which were visited and how that went, and which are due.

    a sources file -> `Sync` -> table `declared`: a row for each source of each file
    a visit -> `outcome_writer` -> table `sources`: a row for each visited source
    table `declared` -> `hosts` with due sources -> `page_reader` for the sources of one host

A canonical URL has a number, its key, in both tables. Sync, visits and the operator write different
columns, so they do not overwrite each other. Only the facts that make a source due are in both
tables: with them one index finds the hosts that have work. A visit owns its host, so the rows of
its source do not change until its outcome is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
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
    delete,
    func,
    literal,
    not_,
    or_,
    select,
    tuple_,
    union,
    update,
)

from walsh_scrapy.feeds.freshness import NEVER
from walsh_scrapy.feeds.sources.source import Kind, Source, declared_urls
from walsh_scrapy.feeds.stores.entrywriter import Written, insert_unseen
from walsh_scrapy.policy.backoff import MAX_WAIT_SECONDS
from walsh_scrapy.policy.frontier import HostWork
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.hoststore import Override, OverrideName, record_override
from walsh_scrapy.state.ownership import find as find_host
from walsh_scrapy.state.records import (
    LlmsTxtRecord,
    SourceRecord,
    columns_of,
    execute,
    insert_if_new,
    record_of,
    row_of,
    upsert,
)
from walsh_scrapy.state.sql import Terms
from walsh_scrapy.state.tables import Due, declared, indexes, sources
from walsh_scrapy.state.views import ViewQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection, Select, Table

    from walsh_scrapy.feeds.stores.entrywriter import EntryRecord

#: Sources that are read at once.
PAGE_SIZE: Final = 1000


@dataclass(frozen=True, slots=True)
class Selection:
    """The sources of one kind in one file whose URL, name or tags contain ``only``."""

    file: int
    kind: Kind
    only: str = ""

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of `_IS_SELECTED`, which leaves ``only`` to `has`."""
        return {"of_file": self.file, "of_kind": self.kind}

    def has(self, source: Source) -> bool:
        """Return True if a source of the file is selected."""
        text_sought = self.only.casefold()
        texts = (source.url, source.name or "", *source.tags)
        return source.kind == self.kind and any(text_sought in text.casefold() for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """What decides which sources are due in a run. Later ones belong to the next run."""

    began: float  #: the start of the run in epoch seconds
    min_revisit: float  #: seconds between two visits of a source
    force: bool = False  #: whether all sources are due, except those that are gone (410)

    def params(self, now: float) -> dict[str, float]:
        """Return the parameters of a query for sources that are due at ``now``."""
        return {"began": self.began, **_due_params(self.min_revisit, now)}


class DueSource(NamedTuple):
    """A source that is due, and what is known about it."""

    source: Source
    record: SourceRecord | None  #: None before its first visit


class KnownSource(NamedTuple):
    """What is known about a source, and when and why it is due."""

    record: SourceRecord
    at: float  #: when it is due, in epoch seconds
    rule: str  #: a word of `Due`


#: Where a page of sources begins: the due time and the key of the last source before the page.
PagePosition = tuple[float, int]
#: Due sources of a host, and where the next page begins; None after the last page.
SourcePage: TypeAlias = tuple[list[DueSource], PagePosition | None]
#: Before the first source.
FIRST_POSITION: Final[PagePosition] = (-math.inf, -1)


@dataclass
class SourceCounts:
    """The numbers of sources that are due in a run, later, or never again."""

    due: int = 0
    later: int = 0
    gone: int = 0
    next_due: float = NEVER  #: when the first source is due that is due later


_C: Final = declared.c
_S: Final = sources.c
#: The columns of a declared source, as `source_of` takes them.
SOURCE_COLUMNS: Final = tuple(_C[name] for name in ("url", "kind", "every", "delay", "details"))
_RECORD_COLUMNS: Final = columns_of(SourceRecord, sources)
_IS_SELECTED: Final = (_C.file == bindparam("of_file"), _C.kind == bindparam("of_kind"))
_COUNT_SQL: Final = select(func.count()).select_from(declared)
_NOW: Final = bindparam("now", type_=Double)
_BEGAN: Final = bindparam("began", type_=Double)
_HAS_KEY: Final = _S.url_key == bindparam("of")
_VISITED_AT_SQL: Final = select(_S.visited_at).where(_HAS_KEY)
_UPDATE_SQL: Final = update(sources).where(_HAS_KEY).returning(_S.resumed)
_FACTS: Final = ("visited_at", "not_before", "failures", "unconnected")
_REPEAT_SQL: Final = (
    update(declared)
    .where(_C.url_key == bindparam("of"))
    .values({name: bindparam(f"new_{name}") for name in (*_FACTS, "host")})
)
_NO_VALIDATORS: Final[dict[str, Any]] = {"validator_url": None, "etag": None, "last_modified": None}
_DECLARED_SQL: Final = select(*SOURCE_COLUMNS).where(
    _C.url_key == bindparam("of"), _C.file == bindparam("within")
)


class SourceStore(Store):
    """Reads declared and visited sources, and writes what came of visits."""

    # ---- visited sources ----

    def find(self, url: str) -> SourceRecord | None:
        """Return what is known about a source, in any spelling; None before its first visit."""
        record = self._find(SourceRecord, sources, url_key(url))
        return record and record.with_url(record.url)

    def all(self) -> list[SourceRecord]:
        """Return the records of all sources that were ever visited, declared or not."""
        return [_record(row) for row in self._all(select(*_RECORD_COLUMNS))]

    def urls(self) -> dict[str, None]:
        """Return the URLs of all sources that were ever visited, declared or not."""
        return dict.fromkeys(url for (url,) in self._all(select(_S.url)))

    def known_urls(self) -> dict[str, None]:
        """Return the URLs of all sources that are declared or were ever visited."""
        return dict.fromkeys(url for (url,) in self._all(union(select(_C.url), select(_S.url))))

    def due(self, url: str, min_revisit: float, now: float) -> KnownSource | None:
        """Return what is known about a source, and when it is due; None before its first visit."""
        return next(self._read_due(min_revisit, now, _S.url_key == url_key(url)), None)

    def _read_due(
        self, min_revisit: float, now: float, *conditions: ColumnElement[bool]
    ) -> Iterator[KnownSource]:
        due = _due_expression(sources, literal(0.0, Double))
        query = select(*_RECORD_COLUMNS, *due).where(*conditions)
        for *row, due_at, rule in self._all(query, **_due_params(min_revisit, now)):
            yield KnownSource(_record(row), due_at, rule)

    # ---- visits and the operator ----

    def outcome_writer(
        self,
        known: SourceRecord | None,
        record: SourceRecord,
        entries: Sequence[EntryRecord] = (),
        llmstxt: LlmsTxtRecord | None = None,
        *,
        host: str,
    ) -> Callable[[Connection], Written]:
        """Return a function that writes the outcome of a visit and returns what it changed.

        The result has places in ``entries``.

        ``known`` is the record when the visit began, None before the first visit; ``record`` is the
        record after it. ``host`` is the host of the next visit, or its domain if domains are paced.
        Validators are written together with the entries of the response, so that a crash can
        neither lose nor repeat an entry. If the source no longer has its key, nothing is written.

        If the function is called again, it writes nothing twice and returns the same. A transaction
        with it raises RefusedValues for values that the database does not accept.
        """
        key = {"of": url_key(record.url)}
        is_rerun = False
        row = row_of(record)
        del row["resumed"]  # only the operator writes it
        new_row = {**row, "url_key": key["of"]}

        def write(connection: Connection) -> Written:
            nonlocal is_rerun
            facts = {name: row[name] for name in _FACTS}
            # Of first visits by two crawls at once, the later one is kept, on PostgreSQL too.
            if known is not None or not insert_if_new(connection, sources, new_row):
                resumed = execute(connection, _UPDATE_SQL, {**row, **key}).scalar()
                if resumed is None:  # it moved, and the file declares the new URL by now
                    return Written()
                if known is not None and resumed != known.resumed:  # by the operator, meanwhile
                    facts["failures"] = min(record.failures, 1)
                    changes = _NO_VALIDATORS | {"failures": facts["failures"]}
                    if record.failures:
                        changes["failing_since"] = record.visited_at
                    connection.execute(update(sources).where(_HAS_KEY).values(changes), key)
            repeated = {f"new_{name}": value for name, value in (*facts.items(), ("host", host))}
            execute(connection, _REPEAT_SQL, {**repeated, **key})
            if llmstxt is not None:
                upsert(connection, indexes, row_of(llmstxt))
            is_first = known is None or not known.format
            written = insert_unseen(connection, entries, backfill=is_first, is_rerun=is_rerun)
            # If this runs again, its COMMIT may have succeeded, and only the answer been lost.
            is_rerun = True
            return written

        return write

    @staticmethod
    def is_written(record: SourceRecord) -> Callable[[Connection], bool]:
        """Return a function that tells whether the visit with this record was written."""
        key = {"of": url_key(record.url)}
        return lambda connection: connection.scalar(_VISITED_AT_SQL, key) == record.visited_at

    def accept(self, url: str, host: str) -> None:
        """Take the next document of a source as its feed, and make it due; as `resume`."""
        self._resume(url, host, "accept", {"feed_title": None, "feed_host": None})

    def resume(self, url: str, host: str) -> bool:
        """Forget the validators of a source, so that its next visit gets the whole document.

        A source that is gone (410) or failing becomes due, with no failures; return True for such a
        source. For another source its due time stays, and the result is False. The override is
        recorded for ``host``, the host of the source, or its domain if domains are paced.
        """
        return self._resume(url, host, "resume", {})

    def _resume(self, url: str, host: str, name: OverrideName, changes: Mapping[str, None]) -> bool:
        key = {"of": url_key(url)}
        update_source = update(sources).where(_HAS_KEY)
        forget = update_source.values({**_NO_VALIDATORS, **changes, "resumed": _S.resumed + 1})
        due = {"not_before": 0.0, "failures": 0, "failing_since": None}

        def write(connection: Connection) -> bool:
            if connection.execute(forget, key).rowcount == 0:
                return False
            now = find_host(connection, host).now
            record_override(connection, Override(now, host, name, 0.0, "", url))
            make_due = update_source.where(_S.failures > 0).values(due)
            is_resumed = connection.execute(make_due, key).rowcount == 1
            repeat_facts(connection, _C.url_key == key["of"])
            return is_resumed

        return self._database.write(write)

    # ---- declared sources ----

    def owner(self, chosen: Selection, url: str) -> Source | None:
        """Return a source that declares this URL: as its own, or as the llms.txt of its host."""
        rows = self._all(_DECLARED_SQL, of=url_key(url), within=chosen.file)
        source = next((source_of(*row) for row in rows), None)
        if source and source.url == url and chosen.has(source):
            return source
        if chosen.kind != "llms" or not url.endswith("/llms.txt"):
            return None
        is_there = _C.url.startswith(url.removesuffix("llms.txt"), autoescape=True)
        rows = self._all(
            select(*SOURCE_COLUMNS).where(*_IS_SELECTED, is_there).limit(PAGE_SIZE), **chosen.params
        )
        owners = (source for source in (source_of(*row) for row in rows) if chosen.has(source))
        return next((owner for owner in owners if url in declared_urls(owner)), None)

    def iterate(self, chosen: Selection) -> Iterator[Source]:
        """Yield all chosen sources; a page of them is in memory."""
        page = (
            select(_C.url_key, *SOURCE_COLUMNS)
            .where(*_IS_SELECTED)
            .order_by(_C.url_key)
            .limit(PAGE_SIZE)
        )
        rows = self._all(page, **chosen.params)
        while rows:
            page_sources = (source_of(*values) for _, *values in rows)
            yield from (source for source in page_sources if not chosen.only or chosen.has(source))
            next_page = page.where(_C.url_key > rows[-1][0])
            rows = self._all(next_page, **chosen.params) if len(rows) == PAGE_SIZE else ()

    def count(self, chosen: Selection) -> int:
        """Return the number of chosen sources."""
        if chosen.only:
            return sum(1 for _ in self.iterate(chosen))
        return int(self._all(_COUNT_SQL.where(*_IS_SELECTED), **chosen.params)[0][0])

    def total(self, file: int) -> int:
        """Return the number of sources that a file declares."""
        return int(self._all(_COUNT_SQL.where(_C.file == file))[0][0])

    def count_problems(self, file: int) -> dict[str, int]:
        """Return how many sources of a file have a problem, by problem."""
        query = ViewQuery(
            "readable_sources",
            columns="problem, count(*) AS number",
            where="is_declared AND problem IS NOT NULL",
            group_by="problem",
            terms=Terms(file),
        )
        return {row["problem"]: row["number"] for row in self._database.view(query)}

    # ---- due sources ----

    def hosts(self, chosen: Selection, terms: RunTerms) -> tuple[list[HostWork], SourceCounts]:
        """Return the hosts that have due sources, and how many sources are due, later and gone."""
        due = _due_expression(declared, _C.every)
        params = {**chosen.params, **terms.params(terms.began)}
        is_due = _is_due(declared, due, force=terms.force)
        columns = (_C.host, due.at, case((is_due, 1), else_=0))
        if chosen.only:  # SQL cannot tell which sources contain a text
            query = select(*columns, *SOURCE_COLUMNS).where(*_IS_SELECTED).order_by(_C.host)
            query = query.execution_options(yield_per=PAGE_SIZE)

            def read(connection: Connection) -> tuple[list[HostWork], SourceCounts]:
                rows = connection.execute(query, params)
                return _count(row[:3] for row in rows if chosen.has(source_of(*row[3:])))

            return self._database.read(read)
        by_host = select(_C.host, func.count(), func.min(due.at)).where(*_IS_SELECTED, is_due)
        is_gone = _C.not_before >= NEVER
        later = case((not_(or_(is_gone, is_due)), due.at))
        totals = select(func.count(), func.sum(case((is_gone, 1), else_=0)), func.min(later))
        work = [HostWork(*row) for row in self._all(by_host.group_by(_C.host), **params)]
        ((count, gone, next_due),) = self._all(totals.where(*_IS_SELECTED), **params)
        due_count = sum(host_work.sources for host_work in work)
        counts = SourceCounts(due_count, count - (gone or 0) - due_count, gone or 0)
        return work, counts if next_due is None else replace(counts, next_due=next_due)

    @staticmethod
    def page_reader(
        chosen: Selection,
        terms: RunTerms,
        host: str,
        now: float,
        after: PagePosition,
        max_sources: int = PAGE_SIZE,
    ) -> Callable[[Connection], SourcePage]:
        """Return a function that reads due sources of a host, and where the next page begins.

        Sources that have been due longest come first. ``now`` is in epoch seconds.
        """
        position = {
            "paced": host,
            "since": after[0],
            "after": after[1],
            "max_rows": max_sources + 1,
        }
        params = {**chosen.params, **terms.params(now), **position}

        def read(connection: Connection) -> SourcePage:
            rows = execute(connection, _page_query(force=terms.force), params).all()
            page = rows[:max_sources]
            next_page = (page[-1][0], page[-1][1]) if len(rows) > max_sources else None
            return _due_sources(page, chosen), next_page

        return read


def _due_sources(rows: Sequence[Sequence[Any]], chosen: Selection) -> list[DueSource]:
    """Return the chosen sources in the rows of `_page_query`."""
    due_sources = []
    for _, _, is_due, *values in rows:
        source = source_of(*values[: len(SOURCE_COLUMNS)])
        record_values = values[len(SOURCE_COLUMNS) :]
        if is_due and (not chosen.only or chosen.has(source)):
            record = _record(record_values).with_url(source.url) if record_values[0] else None
            due_sources.append(DueSource(source, record))
    return due_sources


class DeclaredSources(Collection[Source]):
    """The sources that one run may visit, as a collection that reads the state, page by page."""

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
    """Copy the facts that decide when a source is due from `sources` to rows of `declared`."""
    facts = {name: _S[name] for name in _FACTS}
    repeat = update(declared).where(_S.url_key == _C.url_key, *conditions)
    connection.execute(repeat.values(facts))


class LlmsTxtStore(Store):
    """Finds and forgets rows; `SourceStore.outcome_writer` writes them, with their source."""

    def find(self, url: str) -> LlmsTxtRecord | None:
        """Return the row of an llms.txt, or None if it was never requested."""
        return self._find(LlmsTxtRecord, indexes, url)

    def forget(self, url: str) -> None:
        """Delete the row of an llms.txt, so that the next visit requests it again."""
        self._database.change(delete(indexes).where(indexes.c.url == url))


def source_of(url: str, kind: Kind, every: float, delay: float | None, details: str) -> Source:
    """Return the source of a row of `SOURCE_COLUMNS`."""
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
    """Return the record of a row of `_RECORD_COLUMNS`."""
    record = record_of(SourceRecord, row)
    return record.with_url(record.url)


def _due_params(min_revisit: float, now: float) -> dict[str, float]:
    """Return the parameters of `_due_expression`."""
    return {"revisit": min(min_revisit, MAX_WAIT_SECONDS), "now": now}


def _due_expression(table: Table, every: ColumnElement[float]) -> Due:
    return Due.from_columns(table, every, bindparam("revisit", type_=Double), _NOW)


def _is_due(table: Table, due: Due, *, force: bool) -> ColumnElement[bool]:
    """Return the condition that a source is due in a run.

    With ``force`` that is each source which is not gone and which no worker has visited since the
    run began.
    """
    if not force:
        return due.at <= _BEGAN
    visited_at = table.c.visited_at
    return and_(due.at < NEVER, or_(visited_at.is_(None), visited_at <= _BEGAN, visited_at > _NOW))


@cache
def _page_query(*, force: bool) -> Select[Any]:
    """Return the query for a page of the due sources of a host. It is built once, for speed."""
    due = _due_expression(declared, _C.every)
    conditions = (*_IS_SELECTED, _C.host == bindparam("paced"), _is_due(declared, due, force=force))
    # The index alone answers this part, even if the host has very many sources.
    keys = select(_C.url_key, due.at.label("since")).where(*conditions)
    position = bindparam("since", type_=Double), bindparam("after", type_=BigInteger)
    keys = keys.where(tuple_(due.at, _C.url_key) > tuple_(*position))
    page = keys.order_by(due.at, _C.url_key).limit(bindparam("max_rows")).subquery()
    is_in_page = and_(_C.url_key == page.c.url_key, _C.file == bindparam("of_file"))
    joined = page.join(declared, is_in_page).outerjoin(sources, _S.url_key == _C.url_key)
    # `declared` may have an earlier due time than `sources`, if a sync and a visit ended at once.
    is_due_by_record = _is_due(sources, _due_expression(sources, _C.every), force=force)
    is_due = case((or_(_S.url_key.is_(None), is_due_by_record), 1), else_=0)
    columns = (page.c.since, page.c.url_key, is_due, *SOURCE_COLUMNS, *_RECORD_COLUMNS)
    return select(*columns).select_from(joined).order_by(page.c.since, page.c.url_key)


def _count(rows: Iterable[Sequence[Any]]) -> tuple[list[HostWork], SourceCounts]:
    """Count rows of host, due time, and whether the source is due in this run."""
    work: dict[str, HostWork] = {}
    counts = SourceCounts()
    for host, due_at, is_due in rows:
        if is_due:
            host_work = work.get(host, HostWork(host, 0, due_at))
            work[host] = HostWork(host, host_work.sources + 1, min(host_work.since, due_at))
            counts.due += 1
        elif due_at == NEVER:
            counts.gone += 1
        else:
            counts.later += 1
            counts.next_due = min(counts.next_due, due_at)
    return list(work.values()), counts
