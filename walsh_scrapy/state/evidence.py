"""The evidence of a crawl: which requests were sent or denied, and the documents that decided.

A crawl writes it. Commands read a span of time of it, and the audit reads all of it at one moment.
Requests and denials are kept for ``WALSH_LOG_DAYS``, to answer the questions of site owners.

A robots.txt is kept for each origin: scheme, host and port. The table `copies` has the bytes of
each document that ever decided about a request, by their SHA-256, as long as a row of the request
log may refer to them: so the log can be checked (decision 33).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, delete, func, insert, literal, or_, select, union_all, update

from walsh_scrapy.policy.robots.copy import MAX_SETTLING_SECONDS, RobotsCopy
from walsh_scrapy.policy.urls import origin_of, robots_url
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.records import (
    BlocklistCopy,
    columns_of,
    execute,
    insert_if_new,
    record_of,
    row_of,
    upsert,
)
from walsh_scrapy.state.retention import OldRows
from walsh_scrapy.state.tables import (
    COPIED,
    FOR_RULES,
    ITS_URL,
    blocklist,
    copies,
    denials,
    requests,
    robots,
    runs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

DAY_SECONDS: Final = 86_400.0
#: Seconds that a copy is kept longer than the rows that may refer to it. A robots.txt stays in use
#: for a Crawl-delay of up to 30 days (decision 7).
COPY_MARGIN_SECONDS: Final = 31 * 86_400.0
#: Characters of a host in the log. A denied URL may have a longer host than DNS allows.
_MAX_HOST_CHARS: Final = 255
_COPY_PARAMS: Final = {name: f"name_of_{name}" for name in COPIED}
_COPY_IDS: Final = {
    name: select(copies.c.id).where(copies.c.sha256 == bindparam(param)).scalar_subquery()
    for name, param in _COPY_PARAMS.items()
}
_INSERT_SQL: Final = insert(requests).values(_COPY_IDS)
_BEGIN_SQL: Final = _INSERT_SQL.returning(requests.c.id)
#: The columns that are not known before the end of an exchange.
_END_COLUMNS: Final = (
    *("status", "duration", "connect_duration", "monotonic"),
    *("error", "hold", "retry_after", "has_validator"),
)
_HAS_ID: Final = requests.c.id == bindparam("number")
_END_SQL: Final = update(requests).where(_HAS_ID)
_NO_ANSWER_SQL: Final = _END_SQL.values(
    status=None, error=bindparam("reason"), hold=0.0, retry_after=None
)
_FORGET_SQL: Final = delete(requests).where(_HAS_ID)
_INSERT_DENIAL_SQL: Final = insert(denials).values(_COPY_IDS).returning(denials.c.id)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The documents and rules that decided about one request; None where nothing decided.

    The robots.txt is from the origin of the request's URL.
    """

    rule: str | None = None  #: the line of robots.txt, or the listed domain
    line: int | None = None  #: of the rule in that robots.txt, from 1
    #: The SHA-256 of the robots.txt that decided. In a request for robots.txt itself, the fields
    #: about robots.txt are about the copy that was kept after the request.
    robots: str | None = None
    robots_at: float | None = None  #: when it was last requested, in epoch seconds
    blocklist: str | None = None  #: the SHA-256 of the blocklist that decided
    blocklist_at: float | None = None  #: when it was last requested, in epoch seconds
    robots_status: int | None = None  #: of the answer at ``robots_at``; None if there was none
    redirected_from: str | None = None  #: the URL whose answer redirected to this one

    def of_gate(self, gate: str) -> Evidence:
        """Return the part of the evidence that belongs to a denial by ``gate``.

        The other gates may have left evidence when the request was tried before, or was redirected.
        """
        if gate == "robots":
            return self
        rule = self.rule if gate == "blocklist" else None
        return Evidence(
            rule=rule,
            blocklist=self.blocklist,
            blocklist_at=self.blocklist_at,
            redirected_from=self.redirected_from,
        )


NO_EVIDENCE: Final = Evidence()


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request and its outcome: the ``status`` of its response, or else the ``error``."""

    requested_at: (
        float  #: epoch seconds; in the table the moment of its begin, ``connect_duration`` earlier
    )
    host: str
    url: str
    gates: str
    status: int | None = None
    duration: float | None = None  #: seconds; None until its end is known
    monotonic: float = 0.0  #: seconds of the machine's monotonic clock, at its end
    error: str = ""
    run: int | None = None  #: its number in `runs`
    purpose: str = "target"  #: or "robots" or "blocklist"
    #: Seconds of delay that were required before it.
    delay: float = 0.0
    #: Seconds for which its answer put the host on hold.
    hold: float = 0.0
    #: Seconds that its answer asked for; None without a valid Retry-After.
    retry_after: float | None = None
    conditional: bool = False  #: whether it had validators (R7)
    has_validator: bool = False  #: whether its answer had an ETag or a Last-Modified
    evidence: Evidence = NO_EVIDENCE
    source: str | None = None  #: the declared source that a target was for


class LoggedBegin(NamedTuple):
    """The row of a request in the log that was written with its begin."""

    id: int
    at: float  #: epoch seconds of its begin


@dataclass(frozen=True, slots=True)
class DenialRecord:
    """One request that a gate denied; it was not sent."""

    denied_at: float  #: epoch seconds
    host: str
    url: str
    gate: str
    reason: str
    run: int | None
    evidence: Evidence


def log_begin(connection: Connection, record: RequestRecord) -> LoggedBegin:
    """Log a request that is about to be sent, within the transaction of its begin."""
    number = execute(connection, _BEGIN_SQL, _row(record)).scalar()
    return LoggedBegin(number, record.requested_at)


def log_end(
    connection: Connection, record: RequestRecord, begun: LoggedBegin | None = None
) -> None:
    """Log how a request ended, within the transaction of its end.

    Without ``begun``, the whole row is written: the request was not logged when it began.
    """
    row = _row(record)
    if begun is None:
        execute(connection, _INSERT_SQL, row)
        return
    row["connect_duration"] = max(0.0, record.requested_at - begun.at)
    ended = {name: row[name] for name in _END_COLUMNS}
    execute(connection, _END_SQL, ended | {"number": begun.id})


def forget_begin(connection: Connection, begun: LoggedBegin) -> None:
    """Delete the row of a request that was never sent: its host must not seem to have got it."""
    execute(connection, _FORGET_SQL, {"number": begun.id})


def log_no_answer(connection: Connection, begun: LoggedBegin, error: str) -> None:
    """Log that the answer to a request was not its host's, and so put nothing on hold."""
    execute(connection, _NO_ANSWER_SQL, {"number": begun.id, "reason": error})


def denial_writer(record: DenialRecord) -> Callable[[Connection], None]:
    """Return a function that logs a denial in a transaction: once, even if that runs again."""
    attempts: list[int] = []

    def write(connection: Connection) -> None:
        for earlier in attempts:  # the answer to its COMMIT was lost
            connection.execute(delete(denials).where(denials.c.id == earlier))
        attempts.append(execute(connection, _INSERT_DENIAL_SQL, _row(record)).scalar())

    return write


_BODY_SQL: Final = select(copies.c.body).where(copies.c.sha256 == bindparam("name"))


class EvidenceStore(Store):
    """Finds copies of documents, old ones of them, and old rows of the log."""

    def copy(self, sha256: str) -> bytes | None:
        """Return the document with a SHA-256 that decided about requests, or None."""
        body: bytes | None = self._database.scalar(_BODY_SQL, name=sha256)
        return body

    def old_rows(self, now: float, log_seconds: float) -> tuple[OldRows, ...]:
        """Return old requests and denials, and copies to which no row can refer.

        The log is kept for ``log_seconds``, in whole days; ``now`` is in epoch seconds. A copy that
        decides now is kept, however old. So is a copy to which an old row refers that is not
        deleted yet.
        """
        until = _first_kept_day(now, log_seconds)
        times = (requests.c.requested_at, denials.c.denied_at)
        oldest = (select(func.min(at).label("at")) for at in times)
        moments = union_all(*oldest, select(literal(until))).subquery()
        first = select(func.min(moments.c.at)).scalar_subquery()
        is_used = or_(
            select(robots.c.origin).where(robots.c.copy == copies.c.sha256).exists(),
            select(blocklist.c.url).where(blocklist.c.copy == copies.c.sha256).exists(),
        )
        is_old = copies.c.last_used_at < first - COPY_MARGIN_SECONDS
        return (
            OldRows(requests, requests.c.requested_at < until, requests.c.requested_at),
            OldRows(denials, denials.c.denied_at < until, denials.c.denied_at),
            OldRows(copies, is_old & ~is_used, copies.c.last_used_at),
        )

    def kept_since(self, now: float, log_seconds: float) -> float:
        """Return the moment before which no request is kept, in epoch seconds.

        Old requests that are not deleted yet are kept. ``now`` is in epoch seconds.
        """
        until = _first_kept_day(now, log_seconds)
        oldest: float | None = self._database.scalar(select(func.min(requests.c.requested_at)))
        return until if oldest is None else min(until, oldest)


def _first_kept_day(now: float, log_seconds: float) -> float:
    """Return the beginning of the first day whose rows are not deleted, in epoch seconds."""
    return (now - log_seconds) // DAY_SECONDS * DAY_SECONDS


def _row(record: RequestRecord | DenialRecord) -> dict[str, Any]:
    row = row_of(record)
    row["host"] = row["host"][:_MAX_HOST_CHARS]
    if row.get("source") == row["url"]:
        row["source"] = ITS_URL
    evidence = row_of(row.pop("evidence"))
    return row | {_COPY_PARAMS.get(name, name): value for name, value in evidence.items()}


#: Seconds after its last request in which a run without an end may still go on.
MAX_IDLE_RUN_SECONDS: Final = 600.0
#: Seconds before now in which requests may still be in flight, so that their rows lack an end.
MAX_IN_FLIGHT_SECONDS: Final = 300.0
#: Hosts that are suggested instead of an unknown one.
MAX_SUGGESTED_HOSTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """A span of time in the log, in epoch seconds; with ``run`` only the rows of that run."""

    since: float = 0.0
    until: float = math.inf  #: inclusive
    run: int | None = None


class Log:
    """The request log at one moment: rows that are written later are not seen."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def bounds(self, now: float, since: float = 0.0) -> TimeSpan:
        """Return the span of the log from ``since`` to ``now``, in epoch seconds.

        If a run may go on, the last minutes are left out: requests in flight have no end yet.
        """
        newest = select(requests.c.requested_at).where(
            requests.c.run == runs.c.id, requests.c.requested_at > now - MAX_IDLE_RUN_SECONDS
        )
        goes_on = select(runs.c.id).where(runs.c.ended_at.is_(None), newest.exists()).limit(1)
        is_over = self.connection.scalar(goes_on) is None
        return TimeSpan(since=since, until=now if is_over else now - MAX_IN_FLIGHT_SECONDS)

    def subdomains(self, host: str) -> Sequence[str]:
        """Return up to `MAX_SUGGESTED_HOSTS` hosts below ``host`` that were requested."""
        name = requests.c.host
        wanted = select(name).where(name.endswith(f".{host}", autoescape=True)).distinct()
        return self.connection.scalars(wanted.order_by(name).limit(MAX_SUGGESTED_HOSTS)).all()


# ---- copies of robots.txt and the blocklist ----

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
        rows = execute(connection, _ROBOTS_OF_HOST_SQL, {"plain": plain, "secure": secure})
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
            last = execute(connection, _ROBOTS_COPY_SQL, {"key": origin}).scalar()
            name = keep_copy(connection, "robots", copy.body, now=copy.requested_at, last=last)
        upsert(connection, robots, {"origin": origin, **row_of(copy), "copy": name})
        request = {"paced": host, "robots_url": robots_url(origin), "crawl": run}
        since = copy.requested_at - MAX_SETTLING_SECONDS
        answer = {"name": name, "at": copy.requested_at, "last": copy.status}
        params = {**request, **answer, "since": since, "purpose_": "robots"}
        execute(connection, _SET_COPY_SQL, params)

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
        is_kept = execute(connection, _TOUCH_SQL, {"key": used_name, "now": now}).rowcount
        if used_name == name and not is_kept:
            insert_if_new(connection, copies, row)
    return name
