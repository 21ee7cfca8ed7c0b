"""Forgetting a source or a host: what `walsh forget` deletes, and what stays.

Entries keep their keys, so that no other source brings them back as new. The pacing of hosts and
the overrides stay, because the next request needs them.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, delete, exists, or_, select, update

from walsh_scrapy.feeds.stores.entrystore import FORGOTTEN
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state.database import NOW, Store, clock_of
from walsh_scrapy.state.engine import StateError
from walsh_scrapy.state.hoststore import Override, record_override
from walsh_scrapy.state.ownership import find as find_host
from walsh_scrapy.state.records import SourceRecord, in_batches, row_of
from walsh_scrapy.state.tables import (
    copies,
    declared,
    denials,
    entries,
    files,
    hosts,
    indexes,
    requests,
    robots,
    sources,
    workers,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Column, Connection

_OWNED_SQL: Final = select(
    exists().where(
        hosts.c.host == bindparam("paced"),
        workers.c.id == hosts.c.owner,
        workers.c.expires_at > NOW,
    )
)
_DECLARED_SQL: Final = (
    select(declared.c.url, sources.c.moved_to, files.c.path)
    .join(files, files.c.id == declared.c.file)
    .outerjoin(sources, sources.c.url_key == declared.c.url_key)
)
_R: Final = requests.c
_HOPS_SQL: Final = select(_R.id, _R.run, _R.url, _R.redirected_from).where(
    _R.redirected_from.is_not(None)
)
_EMPTY_SQL: Final = (
    update(entries).where(entries.c.key == bindparam("of_key")).values(item=FORGOTTEN)
)


class Target(NamedTuple):
    """What is to be forgotten."""

    host: str
    paced: str  #: its host, or its domain if domains are paced
    url: str = ""  #: of a source; empty for all of the host

    def has(self, url: str | None) -> bool:
        """Return True if a URL belongs to it."""
        return url == self.url if self.url else host_of(url or "") == self.host

    def __str__(self) -> str:
        return self.url or self.host


class Forgotten(NamedTuple):
    """How many rows were deleted, and of entries and sources emptied."""

    requests: int
    denials: int
    entries: int
    sources: int
    documents: int  #: robots.txt and llms.txt files


class ForgetStore(Store):
    """Deletes what the state has of a source or a host."""

    def forget(self, target: Target, reason: str) -> Forgotten:
        """Delete all of a target, and record that with the reason, unless there is nothing.

        Requests to which its redirects led are deleted too, because they show nothing without it.
        Each of their hosts has a record of its own, without the reason, which is about the target.
        Raises StateError for a source that is declared, or a host that a crawl uses now.
        """

        def write(connection: Connection) -> Forgotten:
            if connection.dialect.name == "sqlite":  # what is deleted is overwritten in the file
                connection.exec_driver_sql("PRAGMA secure_delete = ON")
            _refuse_in_use(connection, target)
            gone = _requests_of(connection, target)
            counts = _count_by_host(connection, gone)
            deleted = _delete_all(connection, target, gone)
            if any(deleted):
                now = find_host(connection, target.paced).now
                url, number = target.url or None, counts.pop(target.paced, 0)
                override = Override(now, target.paced, "forget", 0.0, reason, url, number)
                record_override(connection, override)
                for host, number in counts.items():
                    override = Override(now, host, "forget", 0.0, "", None, number)
                    record_override(connection, override)
            return deleted

        return self._database.write(write, str(target))


def _refuse_in_use(connection: Connection, target: Target) -> None:
    if connection.scalar(_OWNED_SQL, {"paced": target.paced, **clock_of(connection)}):
        raise StateError(f"a crawl uses {target.paced} now; call this again when it has ended")
    for row in connection.execute(_DECLARED_SQL):
        if (target.has(row.url) or target.has(row.moved_to)) and Path(row.path).exists():
            raise StateError(f"{row.url} is declared in {row.path}; remove it there first")


def _delete_all(connection: Connection, target: Target, gone: Collection[int]) -> Forgotten:
    of_host = select(denials.c.id, denials.c.url).where(denials.c.host == target.paced)
    denied = [row.id for row in connection.execute(of_host) if target.has(row.url)]
    used = _robots_of(connection, _R.id, gone) | _robots_of(connection, denials.c.id, denied)
    documents = 0
    if not target.url:
        for key in (robots.c.origin, indexes.c.url):
            documents += _delete(connection, key, _keys_of(connection, key, key, target))
    deleted = Forgotten(
        _delete(connection, _R.id, gone),
        _delete(connection, denials.c.id, denied),
        _empty_entries(connection, target),
        _reset_sources(connection, target),
        documents,
    )
    for batch in in_batches(used):
        is_unused = [
            ~exists().where(requests.c.robots == copies.c.id),
            ~exists().where(denials.c.robots == copies.c.id),
            ~exists().where(robots.c.copy == copies.c.sha256),
        ]
        connection.execute(delete(copies).where(copies.c.id.in_(batch), *is_unused))
    return deleted


def _requests_of(connection: Connection, target: Target) -> set[int]:
    """Return the requests of a target, and those to which its redirects led."""
    is_near = or_(_R.host == target.paced, _R.source.is_not(None))
    if target.url:
        is_near = or_(_R.url == target.url, _R.source == target.url)
    near = select(_R.id, _R.run, _R.url, _R.source).where(is_near)
    found = {
        row.id: (row.run, row.url)
        for row in connection.execute(near)
        if target.has(row.url) or target.has(row.source)
    }
    hops = connection.execute(_HOPS_SQL).all()
    passed = set(found.values())
    while more := {
        hop.id: (hop.run, hop.url)
        for hop in hops
        if hop.id not in found and (hop.run, hop.redirected_from) in passed
    }:
        found |= more
        passed = set(more.values())
    return set(found)


def _count_by_host(connection: Connection, ids: Collection[int]) -> Counter[str]:
    """Return how many of the requests went to each host, or to each domain if domains are paced."""
    counts: Counter[str] = Counter()
    for batch in in_batches(ids):
        counts.update(connection.scalars(select(_R.host).where(_R.id.in_(batch))))
    return counts


def _robots_of(connection: Connection, key: Column[int], ids: Collection[int]) -> set[int]:
    """Return the copies of robots.txt that decided about requests or denials."""
    column = key.table.c.robots
    return {
        copy
        for batch in in_batches(ids)
        for copy in connection.scalars(select(column).where(key.in_(batch)).distinct())
        if copy is not None
    }


def _keys_of(
    connection: Connection, key: Column[int] | Column[str], url: Column[str], target: Target
) -> list[Any]:
    """Return the keys of the rows whose URL belongs to a target, in whatever spelling."""
    return [row[0] for row in connection.execute(select(key, url)) if target.has(row[1])]


def _delete(connection: Connection, key: Column[int] | Column[str], keys: Iterable[object]) -> int:
    """Delete the rows with these keys, and return their number."""
    batches = in_batches(list(keys))
    return sum(
        connection.execute(delete(key.table).where(key.in_(batch))).rowcount for batch in batches
    )


def _reset_sources(connection: Connection, target: Target) -> int:
    """Empty the rows of sources, whose URLs the entries need, and return their number."""
    bare = row_of(SourceRecord(url="", kind=""))
    for name in ("url", "kind"):
        del bare[name]
    reset = update(sources).where(sources.c.visited_at.is_not(None)).values(bare)
    keys = _keys_of(connection, sources.c.url_key, sources.c.url, target)
    return sum(
        connection.execute(reset.where(sources.c.url_key.in_(batch))).rowcount
        for batch in in_batches(keys)
    )


def _empty_entries(connection: Connection, target: Target) -> int:
    """Delete the items of the entries of a target, and return their number."""
    kept = select(*entries.c["key", "source", "item"]).where(entries.c.item != FORGOTTEN)
    keys = [
        {"of_key": row.key}
        for row in connection.execute(kept)
        if target.has(row.source) or (not target.url and target.has(_link_of(row.item)))
    ]
    if keys:
        connection.execute(_EMPTY_SQL, keys)
    return len(keys)


def _link_of(item: str) -> str:
    try:
        return json.loads(item).get("url") or ""
    except (ValueError, AttributeError):
        return ""
