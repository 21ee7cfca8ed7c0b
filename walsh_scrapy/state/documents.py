"""Documents that a crawl works by: robots.txt, the blocklist and its schema, llms.txt (R2, R3, R9).

Each that was in force is kept once more, by the name of its bytes, as long as a row may name it
(decisions 14, 33). A robots.txt has a copy for each origin: scheme, host and port (decision 5).
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, func, or_, select, update

from walsh_scrapy.policy.robots.copy import MAX_SETTLING_SECONDS, RobotsCopy
from walsh_scrapy.policy.urls import origin_of, robots_url
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.records import (
    BlocklistCopy,
    LlmsTxtRecord,
    columns_of,
    insert_if_new,
    record_of,
    row_of,
    upsert,
)
from walsh_scrapy.state.retention import OldRows
from walsh_scrapy.state.tables import (
    FOR_RULES,
    blocklist,
    copies,
    indexes,
    requests,
    robots,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

_NAMED: Final = update(copies).where(copies.c.sha256 == bindparam("key"))
_STILL_KEPT: Final = _NAMED.values(last_used_at=bindparam("now"))
#: Seconds for which a copy is kept after the last request for it. The host of a source that is
#: visited once in 30 days is still known then: its Crawl-delay, and its last good copy if it does
#: not answer.
KEEP_SECONDS: Final = 90 * 86_400.0
_ROBOTS_OF_HOST: Final = select(robots.c.origin, *columns_of(RobotsCopy, robots)).where(
    or_(robots.c.origin == bindparam("plain"), robots.c.origin == bindparam("secure"))
)
_ROBOTS_NAME: Final = select(robots.c.copy).where(robots.c.origin == bindparam("key"))

_SENT: Final = (
    FOR_RULES,
    requests.c.host == bindparam("paced"),
    requests.c.requested_at >= bindparam("since"),
    requests.c.purpose == bindparam("purpose_"),
    requests.c.url == bindparam("robots_url"),
    requests.c.run.is_not_distinct_from(bindparam("crawl")),
)
_LAST_SENT: Final = select(func.max(requests.c.id)).where(*_SENT).scalar_subquery()
_NAME_COPY: Final = (
    update(requests)
    .where(requests.c.id == _LAST_SENT)
    .values(
        robots=select(copies.c.id).where(copies.c.sha256 == bindparam("name")).scalar_subquery(),
        robots_at=bindparam("at"),
        robots_status=bindparam("last"),
    )
)


class RobotsStore(Store):
    """Keeps the last copy of each file, so that all runs of a day request it once."""

    def find(self, origin: str) -> RobotsCopy | None:
        """Return the copy kept for an origin, however old."""
        return self._find(RobotsCopy, robots, origin)

    @staticmethod
    def of_host(connection: Connection, host: str) -> dict[str, RobotsCopy | None]:
        """Return the copies of the two origins that a host has at the usual ports."""
        plain, secure = origin_of(f"http://{host}/"), origin_of(f"https://{host}/")
        found: dict[str, RobotsCopy | None] = {plain: None, secure: None}
        rows = connection.execute(_ROBOTS_OF_HOST, {"plain": plain, "secure": secure})
        return found | {origin: record_of(RobotsCopy, row) for origin, *row in rows}

    def write(
        self,
        connection: Connection,
        origin: str,
        copy: RobotsCopy,
        host: str | None,
        run: int | None,
    ) -> None:
        """Replace the copy kept for an origin, within a transaction.

        ``host`` is the host of the origin, or its domain if domains are paced. The request of
        ``run`` that was the last one for the file names the copy from now on.
        """
        name = None
        if copy.body is not None:
            last = connection.scalar(_ROBOTS_NAME, {"key": origin})
            name = keep_copy(connection, "robots", copy.body, now=copy.requested_at, last=last)
        upsert(connection, robots, {"origin": origin, **row_of(copy), "copy": name})
        sent = {"paced": host, "robots_url": robots_url(origin), "crawl": run}
        since = copy.requested_at - MAX_SETTLING_SECONDS
        brought = {"name": name, "at": copy.requested_at, "last": copy.status}
        connection.execute(_NAME_COPY, {**sent, **brought, "since": since, "purpose_": "robots"})

    def old_rows(self, now: float) -> OldRows:
        """Return the copies without a request in 90 days; ``now`` is in epoch seconds."""
        is_old = robots.c.requested_at < now - KEEP_SECONDS
        return OldRows(robots, is_old, robots.c.requested_at)


_OF_URL: Final = blocklist.c.url == bindparam("key")
_CHECKED_AT: Final = select(blocklist.c.requested_at).where(_OF_URL)
_BLOCKLIST_NAME: Final = select(blocklist.c.copy).where(_OF_URL)
_DOCUMENT: Final = select(copies.c.body).where(copies.c.sha256 == blocklist.c.copy, _OF_URL)


class BlocklistStore(Store):
    """Keeps the last good copy of each URL, however old, until a better one is adopted."""

    def find(self, url: str) -> BlocklistCopy | None:
        """Return the copy of ``url``, or None if there never was one."""
        return self._find(BlocklistCopy, blocklist, url)

    def document(self, url: str) -> bytes | None:
        """Return the document that came from ``url``, or None if there never was one."""
        document: bytes | None = self._database.scalar(_DOCUMENT, key=url)
        return document

    def requested_at(self, url: str) -> float:
        """Return when the copy of ``url`` was checked, in epoch seconds; 0 if there is none."""
        return self._database.scalar(_CHECKED_AT, key=url) or 0.0

    def keep(self, url: str, copy: BlocklistCopy, document: bytes | None = None) -> None:
        """Replace the copy of ``url``, with its ``document``; without one that is unchanged."""

        def write(connection: Connection) -> None:
            if document is not None:
                last = connection.scalar(_BLOCKLIST_NAME, {"key": url})
                keep_copy(connection, "blocklist", document, now=copy.requested_at, last=last)
            upsert(connection, blocklist, {"url": url, **row_of(copy)})

        self._database.write(write)


class LlmsTxtStore(Store):
    """Finds and forgets rows; `SourceStore.outcome_writer` writes them, with their source."""

    def find(self, url: str) -> LlmsTxtRecord | None:
        """Return the row of an llms.txt, or None if it was never requested."""
        return self._find(LlmsTxtRecord, indexes, url)

    def forget(self, url: str) -> None:
        """Delete the row of an llms.txt, so that the next visit requests it again."""
        self._database.change(delete(indexes).where(indexes.c.url == url))


def hash_of(body: bytes) -> str:
    """Return the name of a copy: the SHA-256 of its bytes, in hexadecimal."""
    return sha256(body).hexdigest()


def keep_copy(
    connection: Connection, kind: str, body: bytes, *, now: float, last: str | None
) -> str:
    """Keep a document that is now in force, and return its name.

    ``last`` is the name of the one that was in force there until now. Both count as in force
    at ``now``, in epoch seconds: from then on the last one may become too old.
    """
    name = hash_of(body)
    row = {"sha256": name, "kind": kind, "body": body, "first_used_at": now, "last_used_at": now}
    # Two crawls that lock the same rows do so in one order, else each could wait for the other.
    for each in sorted({name, last or name}):
        is_kept = connection.execute(_STILL_KEPT, {"key": each, "now": now}).rowcount
        if each == name and not is_kept:
            insert_if_new(connection, copies, row)
    return name
