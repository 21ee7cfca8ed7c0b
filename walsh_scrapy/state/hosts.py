"""The pacing ledger: who may ask which host, and when (R4, R5; rulings 2, 3, 7, 15)."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from walsh_scrapy.policy.pacing import HostTimes
from walsh_scrapy.state.tables import hosts

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from walsh_scrapy.state.database import Database

_COLUMNS = (*(hosts.c[field.name] for field in fields(HostTimes)), hosts.c.revision)


class Ledger:
    """Every process that shares a state paces itself by this one table.

    A change is a compare-and-set on the line's revision, so of two processes that want a host at
    the same moment one gets it, on any database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def times(self, host: str, now: float) -> HostTimes:
        """Return what the ledger knows of a host; a host never asked has empty times."""
        with self._database.read() as connection:
            return _find(connection, host)[0].rebased(now)

    def take(self, host: str, now: float, spacing: float, timeout: float) -> float:
        """Lease a host for one request, which lasts at most ``timeout`` seconds.

        Return 0 when the host is ours now, else the epoch second at which to ask again.
        """
        wait_until = 0.0

        def leased(times: HostTimes) -> HostTimes:
            nonlocal wait_until
            is_ready = times.ready_at(spacing) <= now
            wait_until = 0.0 if is_ready else times.look_again_at(now, spacing)
            return times.leased(now, timeout) if is_ready else times

        self.change(host, now, leased)
        return wait_until

    def release(self, host: str, now: float, interval: float) -> HostTimes:
        """Give a host back at the end of an exchange; ``interval`` is its spacing from now on."""
        return self.change(host, now, lambda times: times.released(now, interval))

    def change(self, host: str, now: float, decide: Callable[[HostTimes], HostTimes]) -> HostTimes:
        """Let a decision of ``policy`` rewrite a host's line, and return the new line."""
        while True:
            with self._database.write() as connection:
                known, revision = _find(connection, host)
                wanted = decide(known.rebased(now))
                if wanted == known or _replace(connection, host, wanted, revision):
                    return wanted


def _find(connection: Connection, host: str) -> tuple[HostTimes, int | None]:
    row = connection.execute(select(*_COLUMNS).where(hosts.c.host == host)).one_or_none()
    return (HostTimes(), None) if row is None else (HostTimes(*row[:-1]), row[-1])


def _replace(connection: Connection, host: str, times: HostTimes, revision: int | None) -> bool:
    """Write a line if it is still the one that was read; False where another came first."""
    if revision is None:
        try:
            with connection.begin_nested():
                connection.execute(insert(hosts), {"host": host, **asdict(times)})
        except IntegrityError:
            return False
        return True
    changed = connection.execute(
        update(hosts)
        .where(hosts.c.host == host, hosts.c.revision == revision)
        .values(**asdict(times), revision=revision + 1)
    )
    return changed.rowcount == 1
