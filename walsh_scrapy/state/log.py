"""The log: the requests that were sent or denied, and the evidence (decision 33).

A crawl writes it; commands read a span of time, and the audit all of it, as of one moment. It is
kept for ``WALSH_LOG_DAYS``, to answer the questions of site owners.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    union_all,
    update,
)

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
#: Seconds that a copy outlasts the rows that may name it. The longest Crawl-delay that a copy stays
#: in use for is 30 days (decision 7).
COPY_MARGIN_SECONDS: Final = 31 * 86_400.0
#: Characters. A URL that is denied may have a longer host than any that can be requested.
_MAX_HOST_CHARS: Final = 255
_NAMES: Final = {name: f"name_of_{name}" for name in COPIED}
_NUMBERS: Final = {
    name: select(copies.c.id).where(copies.c.sha256 == bindparam(of_name)).scalar_subquery()
    for name, of_name in _NAMES.items()
}
_INSERT: Final = insert(requests).values(_NUMBERS)
_BEGIN: Final = _INSERT.returning(requests.c.id)
#: The columns that are not known before the end of an exchange.
_ENDS: Final = (
    *("status", "duration", "connect_duration", "monotonic"),
    *("error", "hold", "retry_after", "has_validator"),
)
_OF_NUMBER: Final = requests.c.id == bindparam("number")
_END: Final = update(requests).where(_OF_NUMBER)
_FORGET: Final = delete(requests).where(_OF_NUMBER)
_INSERT_DENIAL: Final = insert(denials).values(_NUMBERS).returning(denials.c.id)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The documents and rules that decided about one request; None where none did.

    The origin of the robots.txt is that of the request's URL.
    """

    rule: str | None = None  #: the line of robots.txt, or the listed domain
    line: int | None = None  #: of the rule in that robots.txt, from 1
    #: The copy of robots.txt that decided, by its SHA-256. A request for robots.txt itself gets the
    #: next three when the copy that counts after it is kept.
    robots: str | None = None
    robots_at: float | None = None  #: when it was last requested, in epoch seconds
    blocklist: str | None = None  #: the blocklist in force, by its SHA-256
    blocklist_at: float | None = None  #: when it was last requested, in epoch seconds
    robots_status: int | None = None  #: of the answer at ``robots_at``; None if there was none
    redirected_from: str | None = None  #: the URL whose answer redirected to this one

    def of_gate(self, gate: str) -> Evidence:
        """Return the evidence for a denial by ``gate``.

        A retry, or a redirect to another host, carries earlier evidence.
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
    """One request and its outcome; ``status`` is None if there was no response but ``error``."""

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
    #: Seconds: the delay in force before it, as it was when the request began.
    delay: float = 0.0
    #: Seconds for which its answer put the host on hold.
    hold: float = 0.0
    #: Seconds that its answer asked for; None without a Retry-After that can be read.
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
    number = connection.execute(_BEGIN, _row(record)).scalar_one()
    return LoggedBegin(number, record.requested_at)


def log_end(
    connection: Connection, record: RequestRecord, begun: LoggedBegin | None = None
) -> None:
    """Log how a request ended, within the transaction of its end.

    Its whole row is written if it has none: it was not logged when it began.
    """
    row = _row(record)
    if begun is None:
        connection.execute(_INSERT, row)
        return
    row["connect_duration"] = max(0.0, record.requested_at - begun.at)
    connection.execute(_END, {name: row[name] for name in _ENDS} | {"number": begun.id})


def forget_begin(connection: Connection, begun: LoggedBegin) -> None:
    """Delete the row of a request that was never sent (decision 29)."""
    connection.execute(_FORGET, {"number": begun.id})


def denial_writer(record: DenialRecord) -> Callable[[Connection], None]:
    """Return a function that logs a denial in a transaction: once, even if it is tried again."""
    attempts = list[int]()

    def write(connection: Connection) -> None:
        for earlier in attempts:  # the answer to its COMMIT was lost
            connection.execute(delete(denials).where(denials.c.id == earlier))
        attempts.append(connection.execute(_INSERT_DENIAL, _row(record)).scalar_one())

    return write


class EvidenceStore(Store):
    """Finds old rows of the log and its documents."""

    def old_rows(self, now: float, log_seconds: float) -> tuple[OldRows, ...]:
        """Return requests and denials that are older, and copies that no row can name.

        The log is kept for ``log_seconds``, and each day of it as a whole; ``now`` is in epoch
        seconds. A copy that is in force stays, however old. Old rows that are not deleted yet count
        as well.
        """
        until = (now - log_seconds) // DAY_SECONDS * DAY_SECONDS
        times = (requests.c.requested_at, denials.c.denied_at)
        firsts = (select(func.min(at).label("at")) for at in times)
        moments = union_all(*firsts, select(literal(until))).subquery()
        first = select(func.min(moments.c.at)).scalar_subquery()
        is_in_force = or_(
            select(robots.c.origin).where(robots.c.copy == copies.c.sha256).exists(),
            select(blocklist.c.url).where(blocklist.c.copy == copies.c.sha256).exists(),
        )
        is_old = copies.c.last_used_at < first - COPY_MARGIN_SECONDS
        return (
            OldRows(requests, requests.c.requested_at < until, requests.c.requested_at),
            OldRows(denials, denials.c.denied_at < until, denials.c.denied_at),
            OldRows(copies, is_old & ~is_in_force, copies.c.last_used_at),
        )


def _row(record: RequestRecord | DenialRecord) -> dict[str, Any]:
    row = row_of(record)
    row["host"] = row["host"][:_MAX_HOST_CHARS]
    if row.get("source") == row["url"]:
        row["source"] = ITS_URL
    found = row_of(row.pop("evidence"))
    return row | {_NAMES.get(name, name): value for name, value in found.items()}


#: Seconds after its last request in which a run without an end may still go on, and the seconds
#: before now whose rows may still lack the ends of requests in flight.
MAX_IDLE_RUN_SECONDS: Final = 600.0
MAX_IN_FLIGHT_SECONDS: Final = 300.0
#: Hosts that are suggested.
MAX_SUGGESTED_HOSTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """A span of time, in epoch seconds, and the run that the rows name; None for any run."""

    since: float = 0.0
    until: float = math.inf  #: the last moment
    run: int | None = None


class Log:
    """The request log as of one moment: rows that are written meanwhile are not seen."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def bounds(self, now: float, since: float = 0.0) -> TimeSpan:
        """Return the bounds of the log at ``now``, in epoch seconds.

        If a run may go on, its last minutes are left out: requests in flight have no end yet.
        """
        newest = select(requests.c.requested_at).where(
            requests.c.run == runs.c.id, requests.c.requested_at > now - MAX_IDLE_RUN_SECONDS
        )
        goes_on = select(runs.c.id).where(runs.c.ended_at.is_(None), newest.exists()).limit(1)
        is_over = self.connection.scalar(goes_on) is None
        return TimeSpan(since=since, until=now if is_over else now - MAX_IN_FLIGHT_SECONDS)

    def subdomains(self, host: str) -> Sequence[str]:
        """Return hosts below ``host`` in the log of requests, at most `MAX_SUGGESTED_HOSTS`."""
        name = requests.c.host
        wanted = select(name).where(name.endswith(f".{host}", autoescape=True)).distinct()
        return self.connection.scalars(wanted.order_by(name).limit(MAX_SUGGESTED_HOSTS)).all()
