"""What the sources files declare, as the state has it (decision 40).

`sync` writes it. What a visit changes in the record of a source is written here too, by the same
transaction, so that `agenda` finds what is due without that record.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from scrapy.utils.datatypes import LocalCache
from sqlalchemy import bindparam, func, select, update

from walsh_scrapy.policy.freshness import NEVER, growth
from walsh_scrapy.policy.pacing import PaceBy
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.sources import Kind, Source, declared_urls
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.state.tables import choices, declared

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement, Connection, Select

#: Sources read at once.
PAGE: Final = 1000
#: Sources that were read a moment ago: a visit of each is about to begin.
_OWNERS_IN_MEMORY: Final = 10_000
#: The columns of a source, as ``source_of`` takes them.
SOURCE: Final = tuple(declared.c[name] for name in ("url", "kind", "every", "pause", "details"))
_UNIT: Final = select(choices.c.value).where(choices.c.name == "pace_by")
_FACTS: Final = update(declared).where(declared.c.url_key == bindparam("of"))
_FACT_NAMES: Final = ("host", "fetched_at", "growth", "asked", "is_gone", "has_skips")
_WRITE_FACTS: Final = _FACTS.values({name: bindparam(name) for name in _FACT_NAMES})
_FIND: Final = select(*SOURCE).where(
    declared.c.url_key == bindparam("of"), declared.c.file == bindparam("within")
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Sources of one file: those of a kind whose URL, name or tags contain ``only``."""

    file: int
    kind: Kind
    only: str = ""

    def has(self, source: Source) -> bool:
        """Return True if a source of the file is one of them."""
        wanted = self.only.casefold()
        texts = (source.url, source.name or "", *source.tags)
        return source.kind == self.kind and any(wanted in text.casefold() for text in texts)

    @property
    def where(self) -> list[ColumnElement[bool]]:
        """The conditions of the rows, but for ``only``."""
        return [declared.c.file == self.file, declared.c.kind == self.kind]


class DeclaredStore(Store):
    """Reads what the synced files declare."""

    def find(self, chosen: Selection, url: str) -> Source | None:
        """Return the source with exactly this URL, or None."""
        row = {"of": url_key(url), "within": chosen.file}
        found = self._database.read(lambda connection: connection.execute(_FIND, row).first())
        source = source_of(*found) if found else None
        return source if source and source.url == url and chosen.has(source) else None

    def owner(self, chosen: Selection, url: str) -> Source | None:
        """Return a source that declares this URL: as its own, or as the llms.txt of its host."""
        if source := self.find(chosen, url):
            return source
        if chosen.kind != "llms" or not url.endswith("/llms.txt"):
            return None
        origin = url.removesuffix("llms.txt")
        is_there = declared.c.url.startswith(origin, autoescape=True)
        wanted = select(*SOURCE).where(*chosen.where, is_there)
        rows = self._all(wanted.limit(PAGE))
        owners = (source for source in (source_of(*row) for row in rows) if chosen.has(source))
        return next((each for each in owners if url in declared_urls(each)), None)

    def each(self, chosen: Selection) -> Iterator[Source]:
        """Yield all of them in the order of the file, a page at a time."""
        position = declared.c.position
        page = select(*SOURCE, position).where(*chosen.where).order_by(position).limit(PAGE)
        last = float("-inf")
        while True:
            rows = self._all(page.where(position > last))
            found = (source_of(*values) for *values, _ in rows)
            yield from (each for each in found if not chosen.only or chosen.has(each))
            if len(rows) < PAGE:
                return
            last = rows[-1][-1]

    def total(self, file: int) -> int:
        """Return how many sources a file declares."""
        counted = select(func.count()).select_from(declared).where(declared.c.file == file)
        return self._database.read(lambda connection: connection.execute(counted).scalar_one())

    def count(self, chosen: Selection) -> int:
        """Return how many they are."""
        if chosen.only:
            return sum(1 for _ in self.each(chosen))
        counted = select(func.count()).select_from(declared).where(*chosen.where)
        return self._database.read(lambda connection: connection.execute(counted).scalar_one())

    def _all(self, wanted: Select[Any]) -> Sequence[Sequence[Any]]:
        return self._database.read(lambda connection: connection.execute(wanted).all())


class DeclaredSources(Collection[Source]):
    """The sources that one run may ask for; all of them are in the state, and none in memory."""

    def __init__(self, store: DeclaredStore, chosen: Selection) -> None:
        self.chosen = chosen
        self._store = store
        self._owners: LocalCache[str, Source | None] = LocalCache(_OWNERS_IN_MEMORY)

    def __iter__(self) -> Iterator[Source]:
        return self._store.each(self.chosen)

    def __len__(self) -> int:
        return self._store.count(self.chosen)

    def __contains__(self, source: object) -> bool:
        return isinstance(source, Source) and self.owner(source.url) == source

    def owner(self, url: str) -> Source | None:
        """Return the source that declares a URL: as its own, or as the llms.txt of its host."""
        if url not in self._owners:
            self._owners[url] = self._store.owner(self.chosen, url)
        return self._owners[url]

    def note(self, source: Source) -> None:
        """Note that a source was just read here, so that `owner` need not read it again."""
        self._owners[source.url] = source


def paced_by(connection: Connection) -> PaceBy:
    """Return what is paced together by all crawls on the state (decision 5)."""
    return PaceBy(connection.scalar(_UNIT) or PaceBy.HOST)


def facts_of(record: SourceRecord | None, url: str, unit: Callable[[str], str]) -> dict[str, Any]:
    """Return what a row needs of the record of its source, None if that was never visited."""
    if record is None:
        return {"host": unit(url), **_NEVER_VISITED}
    return {"host": unit(record.address), **_facts(record)}


def _facts(record: SourceRecord) -> dict[str, Any]:
    return {
        "fetched_at": None if record.due_at <= 0.0 else record.fetched_at,
        "growth": growth(record.failures),
        "asked": max(record.asked_interval, record.wished_interval),
        "is_gone": record.fetched_at is not None and record.due_at == NEVER,
        "has_skips": bool(record.skip_hours or record.skip_days),
    }


_NEVER_VISITED: Final = _facts(SourceRecord(url="", kind=""))


def write_facts(connection: Connection, record: SourceRecord, unit: Callable[[str], str]) -> None:
    """Write what follows from the record of a source, for all files that declare it."""
    facts = facts_of(record, record.url, unit)
    connection.execute(_WRITE_FACTS, {"of": url_key(record.url), **facts})


def row_of_source(key: int, source: Source) -> dict[str, Any]:
    """Return what a row has of a source, without its place and without facts."""
    details = [source.name, source.tags, source.page, source.folders]
    return {
        "url_key": key,
        "url": source.url,
        "kind": source.kind,
        "every": source.every.total_seconds() if source.every else 0.0,
        "pause": source.pause.total_seconds() if source.pause else None,
        "details": json.dumps(details, ensure_ascii=False) if any(details) else "",
    }


def source_of(url: str, kind: Kind, every: float, pause: float | None, details: str) -> Source:
    """Return the source of a row of ``SOURCE``."""
    name, tags, page, folders = json.loads(details) if details else (None, (), None, ())
    return Source(
        url,
        kind,
        name,
        tuple(tags),
        timedelta(seconds=every) if every else None,
        timedelta(seconds=pause) if pause else None,
        page,
        tuple(folders),
    )
