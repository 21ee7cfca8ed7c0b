"""The pacing ledger: who may ask which host, and when (R4, R5; rulings 2, 3, 7, 15)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import bindparam, select, update

from walsh_scrapy.policy.pacing import HostTimes
from walsh_scrapy.state.rows import row_of
from walsh_scrapy.state.tables import hosts
from walsh_scrapy.state.upsert import insert_if_new
from walsh_scrapy.state.wirelog import Exchange, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from walsh_scrapy.state.database import Database

_NAMES: Final = tuple(field.name for field in fields(HostTimes))

_FIND: Final = select(*(hosts.c[name] for name in _NAMES), hosts.c.revision).where(
    hosts.c.host == bindparam("key")
)
_UPDATE: Final = (
    update(hosts)
    .where(hosts.c.host == bindparam("key"), hosts.c.revision == bindparam("seen"))
    .values({name: bindparam(name) for name in (*_NAMES, "revision")})
)
#: Lines remembered between two changes: most change again within the same second.
REMEMBERED = 10_000


class _Line(NamedTuple):
    times: HostTimes
    revision: int | None  #: None for a host the ledger does not have yet


class Ledger:
    """Every process that shares a state paces itself by this one table.

    A change is a compare-and-set on the line's revision, so of two processes that want a host at
    the same moment one gets it, on any database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lines: OrderedDict[str, _Line] = OrderedDict()

    def intervals(self, above: float) -> dict[str, float]:
        """Return the spacing of each host that wants more than ``above`` seconds."""
        wide = select(hosts.c.host, hosts.c.interval).where(hosts.c.interval > above)
        with self._database.read() as connection:
            return dict(connection.execute(wide).all())

    def times(self, host: str, now: float) -> HostTimes:
        """Return what the ledger knows of a host; a host never asked has empty times."""
        with self._database.read() as connection:
            return self._remember(host, _find(connection, host)).rebased(now)

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

    def release(self, host: str, now: float, interval: float, exchange: Exchange) -> HostTimes:
        """Give a host back at the end of an exchange, and log that in the same transaction.

        ``interval`` is the host's spacing from now on.
        """
        return self.change(host, now, lambda times: times.released(now, interval), exchange)

    def change(
        self,
        host: str,
        now: float,
        decide: Callable[[HostTimes], HostTimes],
        exchange: Exchange | None = None,
    ) -> HostTimes:
        """Let a decision of ``policy`` rewrite a host's line, and return the new line.

        ``decide`` may be called again, on what another process has written in the meantime.
        """
        remembered = self._lines.get(host)
        while True:
            with self._database.write() as connection:
                line = remembered or _find(connection, host)
                wanted = decide(line.times.rebased(now))
                if wanted == line.times and not remembered:
                    return self._remember(host, line)
                # A decision to leave all as it is has to be made on what is there now.
                written = wanted != line.times and _replace(connection, host, wanted, line.revision)
                if written:
                    if exchange is not None:
                        note(connection, exchange)
                    revision = 0 if line.revision is None else line.revision + 1
                    return self._remember(host, _Line(wanted, revision))
            remembered = None

    def _remember(self, host: str, line: _Line) -> HostTimes:
        self._lines[host] = line
        self._lines.move_to_end(host)
        if len(self._lines) > REMEMBERED:
            self._lines.popitem(last=False)
        return line.times


def _find(connection: Connection, host: str) -> _Line:
    row = connection.execute(_FIND, {"key": host}).one_or_none()
    return _Line(HostTimes(), None) if row is None else _Line(HostTimes(*row[:-1]), row[-1])


def _replace(connection: Connection, host: str, times: HostTimes, revision: int | None) -> bool:
    """Write a line if it is still the one that was read; False where another came first."""
    values = row_of(times)
    if revision is None:
        return insert_if_new(connection, hosts, {"host": host, **values})
    values |= {"key": host, "seen": revision, "revision": revision + 1}
    return connection.execute(_UPDATE, values).rowcount == 1
