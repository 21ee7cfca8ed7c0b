"""What the record knows of one host: the requests that were sent, and those that were not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
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
_EVIDENCE: Final = tuple(field.name for field in fields(Evidence))
#: Rows that an earlier version wrote lack these; they read as what a request has by default.
_DEFAULTS: Final[dict[str, Any]] = {"purpose": "", "pause": 0.0, "hold": 0.0}
#: Seconds by which the clock of a crawl, which measures requests, and that of the ledger, which
#: begins holds, may differ: they are those of two machines.
CLOCKS: Final = 5.0
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

    def holder(self, host: str, paced: str, until: float) -> RequestRecord | None:
        """Return the request whose answer began the hold of a host that ends at ``until``.

        None if the log has none: the robots.txt asked for it (Visit-time), or it is too long ago.
        The rows of requests that were sent in spite of the hold (R3) have what was left of it.
        """
        end = requests.c.sent_at + requests.c.seconds + requests.c.hold
        wanted = select(requests).where(
            requests.c.host == paced,
            requests.c.hold > 0.0,
            end.between(until - CLOCKS, until + CLOCKS),
        )
        with self._database.read() as connection:
            rows = connection.execute(wanted.order_by(requests.c.sent_at, requests.c.id))
            found = (row for row in rows.mappings() if host_of(row["url"]) == host)
            first = next(found, None)
        return None if first is None else _request(first)

    def asked_for_robots(self, url: str, paced: str, until: float) -> RequestRecord | None:
        """Return the last request for the robots.txt at a URL that was sent until a moment."""
        wanted = select(requests).where(
            requests.c.host == paced,
            requests.c.url == url,
            requests.c.purpose == "robots",
            requests.c.sent_at <= until,
        )
        newest = wanted.order_by(requests.c.sent_at.desc(), requests.c.id.desc()).limit(1)
        with self._database.read() as connection:
            row = connection.execute(newest).mappings().one_or_none()
        return None if row is None else _request(row)

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
