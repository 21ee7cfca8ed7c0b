"""The request log: which requests were sent or denied, and why.

A crawl writes the log. Commands read a span of time of it, and the audit reads all of it at one
moment. It is kept for ``WALSH_LOG_DAYS``, to answer the questions of site owners (decision 33).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, delete, func, insert, literal, or_, select, union_all, update

from walsh_scrapy.state.database import Store
from walsh_scrapy.state.records import row_of
from walsh_scrapy.state.retention import OldRows
from walsh_scrapy.state.tables import (
    COPIED,
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
    number = connection.execute(_BEGIN_SQL, _row(record)).scalar_one()
    return LoggedBegin(number, record.requested_at)


def log_end(
    connection: Connection, record: RequestRecord, begun: LoggedBegin | None = None
) -> None:
    """Log how a request ended, within the transaction of its end.

    Without ``begun``, the whole row is written: the request was not logged when it began.
    """
    row = _row(record)
    if begun is None:
        connection.execute(_INSERT_SQL, row)
        return
    row["connect_duration"] = max(0.0, record.requested_at - begun.at)
    connection.execute(_END_SQL, {name: row[name] for name in _END_COLUMNS} | {"number": begun.id})


def forget_begin(connection: Connection, begun: LoggedBegin) -> None:
    """Delete the row of a request that was never sent: its host must not seem to have got it."""
    connection.execute(_FORGET_SQL, {"number": begun.id})


def log_no_answer(connection: Connection, begun: LoggedBegin, error: str) -> None:
    """Log that the answer to a request was not its host's, and so put nothing on hold."""
    connection.execute(_NO_ANSWER_SQL, {"number": begun.id, "reason": error})


def denial_writer(record: DenialRecord) -> Callable[[Connection], None]:
    """Return a function that logs a denial in a transaction: once, even if that runs again."""
    attempts: list[int] = []

    def write(connection: Connection) -> None:
        for earlier in attempts:  # the answer to its COMMIT was lost
            connection.execute(delete(denials).where(denials.c.id == earlier))
        attempts.append(connection.execute(_INSERT_DENIAL_SQL, _row(record)).scalar_one())

    return write


class EvidenceStore(Store):
    """Finds old rows of the log, and old copies of documents."""

    def old_rows(self, now: float, log_seconds: float) -> tuple[OldRows, ...]:
        """Return old requests and denials, and copies to which no row can refer.

        The log is kept for ``log_seconds``, in whole days; ``now`` is in epoch seconds. A copy that
        decides now is kept, however old. So is a copy to which an old row refers that is not
        deleted yet.
        """
        until = (now - log_seconds) // DAY_SECONDS * DAY_SECONDS
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
