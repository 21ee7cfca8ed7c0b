"""What the record knows of one host: the requests that were sent, and those that were not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, select

from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state.evidence import DenialRecord, Evidence
from walsh_scrapy.state.requests import RequestRecord
from walsh_scrapy.state.tables import denials, requests

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement, RowMapping, Select, Table

    from walsh_scrapy.state.database import Database

#: Seconds.
DAY: Final = 86_400.0
_EVIDENCE: Final = ("rule", "line", "robots", "robots_at", "blocklist")
#: Rows that an earlier version wrote lack these; they read as what a request has by default.
_DEFAULTS: Final[dict[str, Any]] = {"purpose": "", "pause": 0.0, "hold": 0.0}
#: Hosts that are suggested.
MOST_HOSTS: Final = 5


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One row of the log of requests, and the end of the exchange before it."""

    record: RequestRecord
    #: Epoch seconds; None if the log has no earlier exchange with the host.
    last_ended: float | None
    #: False if an earlier version wrote the row: it says neither rule nor pause.
    has_evidence: bool = True

    @property
    def waited(self) -> float | None:
        """Seconds from the end of the exchange before it to this request."""
        return None if self.last_ended is None else self.record.sent_at - self.last_ended


class HostHistory:
    """Reads what was sent to a host and what was denied, by days in UTC.

    ``paced`` is the name by which the host is paced: a registrable domain, or the host itself.
    Methods raise what ``State(failed=...)`` returns if the database fails: a StateError by default.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def days(self, host: str, paced: str) -> dict[int, int]:
        """Return how many requests and denials each day has, by days since 1970, in order."""
        sent = select(requests.c.sent_at, requests.c.url).where(requests.c.host == paced)
        kept_back = select(denials.c.at, denials.c.url).where(denials.c.host == host)
        counts: Counter[int] = Counter()
        for wanted in (sent, kept_back):
            with self._database.read() as connection:
                rows = connection.execute(wanted)
                counts.update(int(at // DAY) for at, url in rows if host_of(url) == host)
        return dict(sorted(counts.items()))

    def sent(self, paced: str, since: float, until: float) -> list[SentRequest]:
        """Return what was sent from ``since`` until before ``until`` (epoch seconds), in order."""
        known = requests.c.host == paced
        wanted = _ordered(requests, and_(known, _within(requests, since, until)))
        before = (
            select(requests.c.sent_at + requests.c.seconds)
            .where(known, requests.c.sent_at < since)
            .order_by(requests.c.sent_at.desc())
            .limit(1)
        )
        found = []
        with self._database.read() as connection:
            ended = connection.scalar(before)
            for row in connection.execute(wanted).mappings():
                record = _request(row)
                found.append(SentRequest(record, ended, row["purpose"] is not None))
                ended = record.sent_at + record.seconds
        return found

    def denied(self, host: str, since: float, until: float) -> list[DenialRecord]:
        """Return what was denied from ``since`` until before ``until`` (epoch seconds)."""
        wanted = _ordered(denials, and_(denials.c.host == host, _within(denials, since, until)))
        with self._database.read() as connection:
            return [_denial(row) for row in connection.execute(wanted).mappings()]

    def subdomains(self, host: str) -> list[str]:
        """Return hosts below ``host`` that the log of requests has, at most `MOST_HOSTS`."""
        name = requests.c.host
        wanted = select(name).where(name.endswith(f".{host}", autoescape=True)).distinct()
        with self._database.read() as connection:
            return list(connection.scalars(wanted.order_by(name).limit(MOST_HOSTS)))


def _moment(table: Table) -> Column[Any]:
    return table.c.sent_at if table is requests else table.c.at


def _within(table: Table, since: float, until: float) -> ColumnElement[bool]:
    return and_(_moment(table) >= since, _moment(table) < until)


def _ordered(table: Table, condition: ColumnElement[bool]) -> Select[Any]:
    return select(table).where(condition).order_by(_moment(table), table.c.id)


def _request(row: RowMapping) -> RequestRecord:
    values: dict[str, Any] = {
        name: _DEFAULTS[name] if value is None and name in _DEFAULTS else value
        for name, value in row.items()
        if name != "id" and name not in _EVIDENCE
    }
    return RequestRecord(**values, evidence=_evidence(row))


def _denial(row: RowMapping) -> DenialRecord:
    values: dict[str, Any] = {
        name: row[name] for name in row if name != "id" and name not in _EVIDENCE
    }
    return DenialRecord(**values, evidence=_evidence(row))


def _evidence(row: RowMapping) -> Evidence:
    return Evidence(**{name: row[name] for name in _EVIDENCE})
