"""Evidence: which requests were sent and which denied, and what decided (decision 33).

It is kept for ``WALSH_LOG_DAYS``, to answer the questions of site owners.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
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
from walsh_scrapy.state.partitions import OldDays, begin_of, day_of
from walsh_scrapy.state.pruning import OldRows
from walsh_scrapy.state.rows import row_of, upsert
from walsh_scrapy.state.tables import ITS_URL, blocklist, copies, denials, requests, robots, texts
from walsh_scrapy.state.texts import numbered

if TYPE_CHECKING:
    from walsh_scrapy.state.connection import Connection
    from walsh_scrapy.state.pruning import Old

#: Seconds by which a copy outlasts the records that may name it. The longest Crawl-delay that a
#: copy stays in use for is 30 days (decision 7).
MARGIN: Final = 31 * 86_400.0
#: Characters. A URL that is denied may have a longer host than any that can be asked.
_LONGEST_HOST: Final = 255
_NAMED: Final = update(copies).where(copies.c.hash == bindparam("key"))
_STILL_KEPT: Final = _NAMED.values(kept_at=bindparam("now"))
_INSERT: Final = insert(requests)
_BEGIN: Final = insert(requests).returning(requests.c.id)
#: What is not known before the end of an exchange.
_ENDS: Final = (
    *("status", "seconds", "waited", "monotonic"),
    *("error", "hold", "retry_after"),
)
# Its time says in which partition the row is.
_OF_LEASE: Final = (requests.c.id == bindparam("number"), requests.c.sent_at == bindparam("at"))
_END: Final = update(requests).where(*_OF_LEASE).values({name: bindparam(name) for name in _ENDS})
_FORGET: Final = delete(requests).where(*_OF_LEASE)
_INSERT_DENIAL: Final = insert(denials)


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

    sent_at: float  #: epoch seconds; in the table the moment of its lease, ``waited`` earlier
    host: str
    url: str
    gates: str
    status: int | None = None
    seconds: float | None = None  #: None until its end is known
    monotonic: float = 0.0  #: seconds of the machine's monotonic clock, at its end
    error: str = ""
    run: int | None = None  #: its number in `runs`
    purpose: str = "target"  #: or "robots" or "blocklist"
    #: Seconds: the pause that was asked for before it, as the ledger told when it was leased.
    pause: float = 0.0
    #: Seconds for which its answer put the host on hold. The ledger adds what it decides.
    hold: float = 0.0
    retry_after: str | None = None  #: the header of its answer, as it came
    evidence: Evidence = NO_EVIDENCE
    source: str | None = None  #: the declared source that a target was for


class LoggedLease(NamedTuple):
    """The row of a request in the log that was written with the lease of its host."""

    id: int
    at: float  #: epoch seconds of the lease


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
            upsert(connection, copies, row, only=("kept_at",))
        else:
            connection.run_later(_STILL_KEPT, {"key": each, "now": now})
    return name


def log_lease(connection: Connection, record: RequestRecord) -> LoggedLease:
    """Log a request that is about to be sent, within the transaction that leases its host."""
    row = numbered(connection, _row(record), record.sent_at)
    (number,) = connection.scalars(_BEGIN, row)
    return LoggedLease(number, record.sent_at)


def log_end(
    connection: Connection, record: RequestRecord, lease: LoggedLease | None = None
) -> None:
    """Log how a request ended, within the transaction that releases its host.

    Its whole row is written if it has none: there was no ``lease``.
    """
    row = _row(record)
    if lease is None:
        connection.run_later(_INSERT, numbered(connection, row, record.sent_at))
        return
    row["waited"] = max(0.0, record.sent_at - lease.at)
    connection.run_later(_END, {name: row[name] for name in _ENDS} | _key_of(lease))


def forget_lease(connection: Connection, lease: LoggedLease) -> None:
    """Delete the row of a request that was never sent (decision 29)."""
    connection.run_later(_FORGET, _key_of(lease))


class EvidenceStore(Store):
    """Records denials, and knows what is too old of the log and its documents."""

    def deny(self, record: DenialRecord) -> None:
        """Record a denial."""
        with self._database.write() as connection:
            connection.run(_INSERT_DENIAL, numbered(connection, _row(record), record.at))

    def old_rows(self, now: float, log_seconds: float) -> tuple[Old, ...]:
        """Return requests and denials that are older, and copies and texts that no record can name.

        The log is kept for ``log_seconds``, and each day of it as a whole; ``now`` is in epoch
        seconds. A copy that is in force stays, however old. Old records that are not deleted yet
        count as well.
        """
        until = begin_of(day_of(now - log_seconds))
        times = (requests.c.sent_at, denials.c.at)
        firsts = (select(func.min(at).label("at")) for at in times)
        moments = union_all(*firsts, select(literal(until))).subquery()
        first = select(func.min(moments.c.at)).scalar_subquery()
        is_in_force = or_(
            select(robots.c.origin).where(robots.c.copy == copies.c.hash).exists(),
            select(blocklist.c.url).where(blocklist.c.copy == copies.c.hash).exists(),
        )
        is_old = copies.c.kept_at < first - MARGIN
        is_unnamed = texts.c.used_at < first - MARGIN
        return (
            OldDays(until),
            OldRows(denials, denials.c.at < until, denials.c.at),
            OldRows(copies, is_old & ~is_in_force, copies.c.kept_at),
            OldRows(texts, is_unnamed, texts.c.used_at),
        )


def _row(record: RequestRecord | DenialRecord) -> dict[str, Any]:
    row = row_of(record)
    row["host"] = row["host"][:_LONGEST_HOST]
    if row.get("source") == row["url"]:
        row["source"] = ITS_URL
    return row | row_of(row.pop("evidence"))


def _key_of(lease: LoggedLease) -> dict[str, float]:
    return {"number": lease.id, "at": lease.at}
