"""Copies of the documents that a crawl obeys: robots.txt and the blocklist.

A robots.txt is kept for each origin: scheme, host and port. The table `copies` has the bytes of
each document that ever decided about a request, by their SHA-256, as long as a row of the request
log may refer to them: so the log can be checked (decision 33).
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
    columns_of,
    insert_if_new,
    record_of,
    row_of,
    upsert,
)
from walsh_scrapy.state.retention import OldRows
from walsh_scrapy.state.tables import FOR_RULES, blocklist, copies, requests, robots

if TYPE_CHECKING:
    from sqlalchemy import Connection

_TOUCH_SQL: Final = (
    update(copies).where(copies.c.sha256 == bindparam("key")).values(last_used_at=bindparam("now"))
)
#: Seconds for which a robots.txt is kept after the last request for it. So at a source that is
#: visited every 30 days, the Crawl-delay is known at the next visit; and if robots.txt cannot be
#: fetched then, the last copy decides.
KEEP_SECONDS: Final = 90 * 86_400.0
_ROBOTS_OF_HOST_SQL: Final = select(robots.c.origin, *columns_of(RobotsCopy, robots)).where(
    or_(robots.c.origin == bindparam("plain"), robots.c.origin == bindparam("secure"))
)
_ROBOTS_COPY_SQL: Final = select(robots.c.copy).where(robots.c.origin == bindparam("key"))
_FORGET_ROBOTS_SQL: Final = delete(robots).where(robots.c.origin == bindparam("key"))
#: The requests of a run for one robots.txt since a moment.
_ROBOTS_REQUESTS: Final = (
    FOR_RULES,
    requests.c.host == bindparam("paced"),
    requests.c.requested_at >= bindparam("since"),
    requests.c.purpose == bindparam("purpose_"),
    requests.c.url == bindparam("robots_url"),
    requests.c.run.is_not_distinct_from(bindparam("crawl")),
)
_LAST_REQUEST: Final = select(func.max(requests.c.id)).where(*_ROBOTS_REQUESTS).scalar_subquery()
_SET_COPY_SQL: Final = (
    update(requests)
    .where(requests.c.id == _LAST_REQUEST)
    .values(
        robots=select(copies.c.id).where(copies.c.sha256 == bindparam("name")).scalar_subquery(),
        robots_at=bindparam("at"),
        robots_status=bindparam("last"),
    )
)


class RobotsStore(Store):
    """Keeps the last copy of each robots.txt, so that all runs of a day request it once."""

    def find(self, origin: str) -> RobotsCopy | None:
        """Return the copy for an origin, however old, or None."""
        return self._find(RobotsCopy, robots, origin)

    @staticmethod
    def of_host(connection: Connection, host: str) -> dict[str, RobotsCopy | None]:
        """Return the copies of the two origins that a host has at the usual ports."""
        plain = origin_of(f"http://{host}/")
        secure = origin_of(f"https://{host}/")
        by_origin: dict[str, RobotsCopy | None] = {plain: None, secure: None}
        rows = connection.execute(_ROBOTS_OF_HOST_SQL, {"plain": plain, "secure": secure})
        return by_origin | {origin: record_of(RobotsCopy, row) for origin, *row in rows}

    def write(
        self,
        connection: Connection,
        origin: str,
        copy: RobotsCopy,
        host: str | None,
        run: int | None,
    ) -> None:
        """Replace the copy for an origin, within a transaction.

        ``host`` is the host of the origin, or its domain if domains are paced. The last request of
        ``run`` for this robots.txt refers to the copy from now on.
        """
        name = None
        if copy.body is not None:
            last = connection.scalar(_ROBOTS_COPY_SQL, {"key": origin})
            name = keep_copy(connection, "robots", copy.body, now=copy.requested_at, last=last)
        upsert(connection, robots, {"origin": origin, **row_of(copy), "copy": name})
        request = {"paced": host, "robots_url": robots_url(origin), "crawl": run}
        since = copy.requested_at - MAX_SETTLING_SECONDS
        answer = {"name": name, "at": copy.requested_at, "last": copy.status}
        connection.execute(
            _SET_COPY_SQL, {**request, **answer, "since": since, "purpose_": "robots"}
        )

    @staticmethod
    def forget(connection: Connection, origin: str) -> None:
        """Delete the copy for an origin, within a transaction."""
        connection.execute(_FORGET_ROBOTS_SQL, {"key": origin})

    def old_rows(self, now: float) -> OldRows:
        """Return the copies that were not requested in 90 days; ``now`` is in epoch seconds."""
        is_old = robots.c.requested_at < now - KEEP_SECONDS
        return OldRows(robots, is_old, robots.c.requested_at)


_IS_URL: Final = blocklist.c.url == bindparam("key")
_REQUESTED_AT_SQL: Final = select(blocklist.c.requested_at).where(_IS_URL)
_BLOCKLIST_COPY_SQL: Final = select(blocklist.c.copy).where(_IS_URL)
_DOCUMENT_SQL: Final = select(copies.c.body).where(copies.c.sha256 == blocklist.c.copy, _IS_URL)


class BlocklistStore(Store):
    """Keeps the last valid blocklist of each URL, however old, until a newer one is adopted."""

    def find(self, url: str) -> BlocklistCopy | None:
        """Return the copy of ``url``, or None if none was ever adopted."""
        return self._find(BlocklistCopy, blocklist, url)

    def document(self, url: str) -> bytes | None:
        """Return the bytes of the document at ``url``, or None if none was ever adopted."""
        document: bytes | None = self._database.scalar(_DOCUMENT_SQL, key=url)
        return document

    def requested_at(self, url: str) -> float:
        """Return when ``url`` was requested last, in epoch seconds; 0 without a copy."""
        return self._database.scalar(_REQUESTED_AT_SQL, key=url) or 0.0

    def keep(self, url: str, copy: BlocklistCopy, document: bytes | None = None) -> None:
        """Replace the copy of ``url``; without a ``document`` its bytes are unchanged."""

        def write(connection: Connection) -> None:
            if document is not None:
                last = connection.scalar(_BLOCKLIST_COPY_SQL, {"key": url})
                keep_copy(connection, "blocklist", document, now=copy.requested_at, last=last)
            upsert(connection, blocklist, {"url": url, **row_of(copy)})

        self._database.write(write)


def hash_of(body: bytes) -> str:
    """Return the name of a copy: the SHA-256 of its bytes, in hexadecimal."""
    return sha256(body).hexdigest()


def keep_copy(
    connection: Connection, kind: str, body: bytes, *, now: float, last: str | None
) -> str:
    """Keep a document that decides from now on, and return its name.

    ``last`` is the name of the document that it replaces, which decided until ``now`` (epoch
    seconds): its copy is deleted a while after that.
    """
    name = hash_of(body)
    row = {"sha256": name, "kind": kind, "body": body, "first_used_at": now, "last_used_at": now}
    # Sorted, because two crawls that lock rows in different orders could wait for each other.
    for used_name in sorted({name, last or name}):
        is_kept = connection.execute(_TOUCH_SQL, {"key": used_name, "now": now}).rowcount
        if used_name == name and not is_kept:
            insert_if_new(connection, copies, row)
    return name
