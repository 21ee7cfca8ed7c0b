"""The days of the log of requests: on PostgreSQL each is a partition, and an old one is dropped.

SQLite has one table, whose old rows are deleted. No row needs its partition: what belongs to none,
as when a clock was set, is in `requests_rest`, and is deleted by rows.

To attach a partition takes a lock that only another one, and readers of `requests_rest`, wait for;
to drop one takes a lock that all wait for. A long reader, such as an audit, would keep it waiting,
and all others behind it. So both give up soon, and are tried again later. A day that has a row in
`requests_rest` by then stays there: its partition could not be attached any more.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import text

from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.policy.wording import format_day
from walsh_scrapy.state import pruning
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.pruning import OldRows
from walsh_scrapy.state.tables import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from walsh_scrapy.state.database import Database

#: Seconds after which a partition that could not be made is tried again.
_AGAIN: Final = 600.0
_BEGIN: Final = """DO $$ BEGIN SET LOCAL lock_timeout = '200ms'; """
_MAKE: Final = (
    _BEGIN
    # The second of two processes finds it made.
    + """PERFORM pg_advisory_xact_lock(9310);
IF to_regclass('{name}') IS NULL THEN
    CREATE TABLE {name} (LIKE requests INCLUDING DEFAULTS) WITH (fillfactor = 90);
    ALTER TABLE requests ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({end});
END IF;
EXCEPTION WHEN lock_not_available OR check_violation THEN NULL;
END $$"""
)
_DROP: Final = (
    _BEGIN + "DROP TABLE IF EXISTS {name}; EXCEPTION WHEN lock_not_available THEN NULL; END $$"
)
_NAMES: Final = text(
    "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
    " WHERE inhparent = 'requests'::regclass"
    " AND relname ~ '^requests_[0-9]{4}_[0-9]{2}_[0-9]{2}$' ORDER BY relname"
)
_REST: Final = text(
    "SELECT id FROM requests_rest WHERE sent_at >= :since AND sent_at < :until LIMIT 1"
)
_DELETE_REST: Final = text(
    "DELETE FROM requests_rest WHERE ctid = ANY (ARRAY (SELECT ctid FROM requests_rest"
    " WHERE sent_at < :until ORDER BY sent_at LIMIT :most FOR UPDATE SKIP LOCKED))"
)


def day_of(moment: float) -> str:
    """Return the day of a moment, in epoch seconds: `2026-05-23`, in UTC."""
    return format_day(int(moment // DAY))


def begin_of(day: str) -> float:
    """Return the epoch second at which a day begins."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def end_of(day: str) -> float:
    """Return the epoch second at which a day ends."""
    return begin_of(day) + DAY


class Days(Store):
    """Makes the partitions of days, each before its day begins."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        # From when until when nothing is to be done.
        self._since, self._until = math.inf, -math.inf

    def prepare(self, clock: Callable[[], float]) -> None:
        """Make the partitions of this day and of the next one; ``clock`` returns epoch seconds.

        Most calls have nothing to do. It is a transaction of its own: one that writes rows, and
        waits for others that do, would have to wait for them with its locks.
        """
        if self._database.is_sqlite or self._since <= (now := clock()) < self._until:
            return
        today = day_of(now)
        begin, end = begin_of(today), end_of(today)
        missing = self._missing(begin, end)
        for at in missing:
            self._run(_MAKE.format(name=_name_of(at), begin=at, end=end_of(day_of(at))))
        is_late = missing and self._missing(begin, end)
        self._since, self._until = begin, now + _AGAIN if is_late else end

    def drop(self, until: float) -> Iterator[int]:
        """Drop the partitions of days that end by then, and yield after each transaction.

        The rows of such days that are in no partition of their own are deleted.
        """
        for name in self._names():
            if end_of(_day_of(name)) <= until:
                self._run(_DROP.format(name=name))
                yield 1
        most = pruning.ROWS_AT_ONCE
        while self._has_rest(-math.inf, until):
            with self._database.write() as connection:
                deleted = connection.run(_DELETE_REST, {"until": until, "most": most})
            yield deleted
            if deleted < most:  # what is left now is being deleted by another process
                return

    def _missing(self, *begins: float) -> list[float]:
        made = self._names()
        return [
            at
            for at in begins
            if _name_of(at) not in made and not self._has_rest(at, end_of(day_of(at)))
        ]

    def _has_rest(self, since: float, until: float) -> bool:
        with self._database.read() as connection:
            return connection.scalar(_REST, {"since": since, "until": until}) is not None

    def _names(self) -> list[str]:
        with self._database.read() as connection:
            return connection.scalars(_NAMES)

    def _run(self, sql: str) -> None:
        with self._database.write() as connection:
            connection.run_sql(sql)


class OldDays(NamedTuple):
    """The requests before a day, which are to be deleted."""

    until: float  #: epoch seconds: the begin of that day

    def blocks(self, database: Database) -> Iterator[int]:
        """Delete them, and yield after each transaction."""
        if not database.is_sqlite:
            return Days(database).drop(self.until)
        at = requests.c.sent_at
        return OldRows(requests, at < self.until, at).blocks(database)


def _name_of(moment: float) -> str:
    return f"requests_{day_of(moment).replace('-', '_')}"


def _day_of(name: str) -> str:
    return name.removeprefix("requests_").replace("_", "-")
