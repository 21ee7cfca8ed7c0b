"""Evidence: which requests were sent and which denied, and what decided (decision 33).

It is kept for ``WALSH_LOG_DAYS``, to answer the questions of site owners.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    union_all,
    update,
)

from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.pruning import OldRows
from walsh_scrapy.state.rows import row_of, upsert
from walsh_scrapy.state.tables import COPIED, ITS_URL, blocklist, copies, denials, requests, robots

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

#: Seconds by which a copy outlasts the records that may name it. The longest Crawl-delay that a
#: copy stays in use for is 30 days (decision 7).
MARGIN: Final = 31 * 86_400.0
#: Characters. A URL that is denied may have a longer host than any that can be asked.
_LONGEST_HOST: Final = 255
#: With its number it stands for a copy that is no longer there, which only a change of the state
#: explains.
LOST: Final = "?"
_NAMED: Final = update(copies).where(copies.c.hash == bindparam("key"))
_STILL_KEPT: Final = _NAMED.values(kept_at=bindparam("now"))
_NAMES: Final = {name: f"name_of_{name}" for name in COPIED}
_NUMBERS: Final = {
    name: select(copies.c.id).where(copies.c.hash == bindparam(of_name)).scalar_subquery()
    for name, of_name in _NAMES.items()
}
_INSERT: Final = insert(requests).values(_NUMBERS)
_BEGIN: Final = _INSERT.returning(requests.c.id)
#: What is not known before the end of an exchange.
_ENDS: Final = (
    *("status", "seconds", "waited", "monotonic"),
    *("error", "hold", "retry_after"),
)
_OF_LEASE: Final = requests.c.id == bindparam("number")
_END: Final = update(requests).where(_OF_LEASE).values({name: bindparam(name) for name in _ENDS})
_FORGET: Final = delete(requests).where(_OF_LEASE)
_INSERT_DENIAL: Final = insert(denials).values(_NUMBERS)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What led to one request, and what decided about it; None where nothing did.

    The origin of the robots.txt is that of the request's own URL.
    """

    rule: str | None = None  #: the record of robots.txt, or the listed domain
    line: int | None = None  #: of the rule in that robots.txt, from 1
    #: The copy of robots.txt that decided, by its SHA-256. A request for robots.txt itself gets the
    #: next three when the copy that counts after it is kept.
    robots: str | None = None
    robots_at: float | None = None  #: when it was last asked for, in epoch seconds
    blocklist: str | None = None  #: the blocklist in force, by its SHA-256
    robots_status: int | None = None  #: of the answer at ``robots_at``; None if there was none
    redirected_by: str | None = None  #: the URL whose answer redirected to this one

    def of_gate(self, gate: str) -> Evidence:
        """Return what is evidence for a denial by ``gate``.

        A retry, or a redirect to another host, carries what was found out before.
        """
        if gate == "robots":
            return self
        rule = self.rule if gate == "blocklist" else None
        return Evidence(rule=rule, blocklist=self.blocklist, redirected_by=self.redirected_by)


NO_EVIDENCE: Final = Evidence()


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request and its outcome; ``status`` is None if there was no response but ``error``."""

    sent_at: float  #: epoch seconds; in the table the moment of its begin, ``waited`` earlier
    host: str
    url: str
    gates: str
    status: int | None = None
    seconds: float | None = None  #: None until its end is known
    monotonic: float = 0.0  #: seconds of the machine's monotonic clock, at its end
    error: str = ""
    run: int | None = None  #: its number in `runs`
    purpose: str = "target"  #: or "robots" or "blocklist"
    #: Seconds: the delay that was asked for before it, as it was when the request began.
    pause: float = 0.0
    #: Seconds for which its answer put the host on hold.
    hold: float = 0.0
    retry_after: str | None = None  #: the header of its answer, as it came
    evidence: Evidence = NO_EVIDENCE
    source: str | None = None  #: the declared source that a target was for


class LoggedLease(NamedTuple):
    """The row of a request in the log that was written with its begin."""

    id: int
    at: float  #: epoch seconds of its begin


@dataclass(frozen=True, slots=True)
class DenialRecord:
    """One request that a gate denied; it was not sent."""

    at: float  #: epoch seconds
    host: str
    url: str
    gate: str
    reason: str
    run: int | None
    evidence: Evidence


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
    row = {"hash": name, "kind": kind, "body": body, "first_seen": now, "kept_at": now}
    # Two crawls that lock the same rows do so in one order, else each could wait for the other.
    for each in sorted({name, last or name}):
        if each == name:
            upsert(connection, copies, row, by="hash", only=("kept_at",))
        else:
            connection.execute(_STILL_KEPT, {"key": each, "now": now})
    return name


def log_lease(connection: Connection, record: RequestRecord) -> LoggedLease:
    """Log a request that is about to be sent, within the transaction of its begin."""
    number = connection.execute(_BEGIN, _row(record)).scalar_one()
    return LoggedLease(number, record.sent_at)


def log_end(
    connection: Connection, record: RequestRecord, lease: LoggedLease | None = None
) -> None:
    """Log how a request ended, within the transaction of its end.

    Its whole row is written if it has none: there was no ``lease``.
    """
    row = _row(record)
    if lease is None:
        connection.execute(_INSERT, row)
        return
    row["waited"] = max(0.0, record.sent_at - lease.at)
    connection.execute(_END, {name: row[name] for name in _ENDS} | {"number": lease.id})


def forget_lease(connection: Connection, lease: LoggedLease) -> None:
    """Delete the row of a request that was never sent (decision 29)."""
    connection.execute(_FORGET, {"number": lease.id})


def selected(table: Table, names: tuple[str, ...]) -> Select[Any]:
    """Return the query for columns of a table of the log, as they were before they were written.

    Each number of a copy is its name again, and a source that is the URL of its request is that
    URL.
    """
    source: Any = table
    columns = list[ColumnElement[Any]]()
    for name in names:
        column = table.c[name]
        if name in COPIED:
            copy = copies.alias(f"copy_of_{name}")
            source = source.outerjoin(copy, copy.c.id == column)
            lost = literal(LOST, String) + cast(column, String)
            columns.append(func.coalesce(copy.c.hash, lost).label(name))
        elif column is requests.c.source:
            its_own = (column == ITS_URL, requests.c.url)
            columns.append(case(its_own, else_=column).label(name))
        else:
            columns.append(column)
    return select(*columns).select_from(source)


class EvidenceStore(Store):
    """Records denials, and knows what is too old of the log and its documents."""

    def deny(self, record: DenialRecord) -> None:
        """Record a denial."""
        self._database.write(lambda connection: connection.execute(_INSERT_DENIAL, _row(record)))

    def old_rows(self, now: float, log_seconds: float) -> tuple[OldRows, ...]:
        """Return requests and denials that are older, and copies that no record can name.

        The log is kept for ``log_seconds``, and each day of it as a whole; ``now`` is in epoch
        seconds. A copy that is in force stays, however old. Old records that are not deleted yet
        count as well.
        """
        until = (now - log_seconds) // DAY * DAY
        times = (requests.c.sent_at, denials.c.at)
        firsts = (select(func.min(at).label("at")) for at in times)
        moments = union_all(*firsts, select(literal(until))).subquery()
        first = select(func.min(moments.c.at)).scalar_subquery()
        is_in_force = or_(
            select(robots.c.origin).where(robots.c.copy == copies.c.hash).exists(),
            select(blocklist.c.url).where(blocklist.c.copy == copies.c.hash).exists(),
        )
        is_old = copies.c.kept_at < first - MARGIN
        return (
            OldRows(requests, requests.c.sent_at < until, requests.c.sent_at),
            OldRows(denials, denials.c.at < until, denials.c.at),
            OldRows(copies, is_old & ~is_in_force, copies.c.kept_at),
        )


def _row(record: RequestRecord | DenialRecord) -> dict[str, Any]:
    row = row_of(record)
    row["host"] = row["host"][:_LONGEST_HOST]
    if row.get("source") == row["url"]:
        row["source"] = ITS_URL
    found = row_of(row.pop("evidence"))
    return row | {_NAMES.get(name, name): value for name, value in found.items()}
