"""The pacing ledger: who may ask which host, and when (R4, R5; decisions 2, 3, 7, 15)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import uuid4

from sqlalchemy import bindparam, or_, select, update

from walsh_scrapy.policy.pacing import HostTimes
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.state.engines import StateError
from walsh_scrapy.state.rows import row_of
from walsh_scrapy.state.statements import Statement
from walsh_scrapy.state.tables import choices, hosts
from walsh_scrapy.state.upsert import insert_if_new, upsert
from walsh_scrapy.state.wirelog import Exchange, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from walsh_scrapy.state.database import Database

#: Of ``policy``: a host's line and the present, to its new line.
Decision: TypeAlias = "Callable[[HostTimes, float], HostTimes]"

_NAMES: Final = tuple(field.name for field in fields(HostTimes))

_FIND: Final = Statement(
    select(*(hosts.c[name] for name in _NAMES), hosts.c.revision).where(
        hosts.c.host == bindparam("key")
    )
)
_UPDATE: Final = Statement(
    update(hosts)
    .where(hosts.c.host == bindparam("key"), hosts.c.revision == bindparam("seen"))
    .values({name: bindparam(name) for name in (*_NAMES, "revision")})
)
_RESTING: Final = select(*(hosts.c[name] for name in _NAMES), hosts.c.host).where(
    or_(
        *(hosts.c[name] > bindparam("now") for name in ("hold_until", "lease_until")),
        hosts.c.ended + hosts.c.interval > bindparam("now"),
    )
)
_UNIT: Final = select(choices.c.value).where(choices.c.name == "pace_by")
#: Lines remembered between two changes: most change again within the same second.
REMEMBERED = 10_000


class Standing(NamedTuple):
    """A host's line, and the moment at which it was so."""

    times: HostTimes
    now: float  #: epoch seconds

    @property
    def rest(self) -> float:
        """Seconds until the host may be asked; 0 or less if it may be."""
        return self.times.ready_at(0.0) - self.now


class _Line(NamedTuple):
    times: HostTimes
    revision: int | None  #: None for a host the ledger does not have yet


class Ledger:
    """Every process that shares a state paces itself by this one table.

    A change is a compare-and-set on the line's revision, so of two processes that want a host at
    the same moment one gets it, on any database. The clock is the database's, or ``clock``, which
    gives epoch seconds; it is read when the line has been read, since what others wrote before that
    would seem to lie in the future.
    """

    def __init__(self, database: Database, clock: Callable[[], float] | None = None) -> None:
        self._database = database
        self._clock = clock
        self._holder = uuid4().hex
        self._lines: OrderedDict[str, _Line] = OrderedDict()

    def intervals(self, above: float) -> dict[str, float]:
        """Return the spacing of each host that wants more than ``above`` seconds."""
        wide = select(hosts.c.host, hosts.c.interval).where(hosts.c.interval > above)
        with self._database.read() as connection:
            return dict(connection.execute(wide).all())

    def resting(self) -> dict[str, Standing]:
        """Return the hosts that may not be asked now: on hold, leased, or with a pause to keep."""
        with self._database.read() as connection:
            now = self._now(connection)
            rows = connection.execute(_RESTING, {"now": now}).all()
        lines = {row[-1]: Standing(HostTimes(*row[:-1]).rebased(now), now) for row in rows}
        return {host: standing for host, standing in lines.items() if standing.rest > 0}

    def find(self, host: str) -> Standing:
        """Return what the ledger knows of a host; a host never asked has empty times."""
        with self._database.read() as connection:
            times = self._remember(host, _find(connection, host))
            now = self._now(connection)
        return Standing(times.rebased(now), now)

    def take(self, host: str, spacing: float, timeout: float) -> float:
        """Lease a host for one request, which lasts at most ``timeout`` seconds.

        Return 0 when the host is ours now, else the seconds after which to ask again.
        """
        wait = 0.0

        def leased(times: HostTimes, now: float) -> HostTimes:
            nonlocal wait
            is_ready = times.ready_at(spacing) <= now
            wait = 0.0 if is_ready else times.look_again_at(now, spacing) - now
            return times.leased(now, timeout, self._holder) if is_ready else times

        self.change(host, leased)
        return wait

    def release(
        self, host: str, interval: float, exchange: Exchange, hold: Decision | None = None
    ) -> Standing:
        """Give a host back at the end of an exchange, and log that in the same transaction.

        ``interval`` is the host's spacing from now on; ``hold`` decides what else follows.
        """

        def released(times: HostTimes, now: float) -> HostTimes:
            back = times.released(now, interval, self._holder)
            return hold(back, now) if hold else back

        return self.change(host, released, exchange)

    def change(
        self,
        host: str,
        decide: Decision,
        exchange: Exchange | None = None,
    ) -> Standing:
        """Let a decision of ``policy`` rewrite a host's line, and return the new line.

        ``decide`` is given the line and the present; it may be called again, on what another
        process has written in the meantime.
        """
        remembered = self._lines.get(host)
        while True:
            with self._database.write() as connection:
                line = remembered or _find(connection, host)
                now = self._now(connection)
                wanted = decide(line.times.rebased(now), now)
                if wanted == line.times and not remembered:
                    return Standing(self._remember(host, line), now)
                # A decision to leave all as it is has to be made on what is there now.
                written = wanted != line.times and _replace(connection, host, wanted, line.revision)
                if written:
                    if exchange is not None:
                        note(connection, exchange)
                    revision = 0 if line.revision is None else line.revision + 1
                    return Standing(self._remember(host, _Line(wanted, revision)), now)
            remembered = None

    def pace_by(self, unit: str) -> None:
        """Pace by "host" or "domain" from now on. Raises StateError while others may pace else.

        Crawls that differ in this do not see each other's leases. So a state goes over to another
        unit once every pause and hold kept by the last one is over.
        """
        with self._database.read() as connection:
            if connection.scalar(_UNIT) == unit:
                return
        with self._database.write() as connection:
            found = connection.scalar(_UNIT)
            now = self._now(connection)
            resting = connection.execute(_RESTING, {"now": now}).all()
            if found not in (None, unit) and resting:
                last = max(HostTimes(*row[:-1]).ready_at(0.0) for row in resting)
                raise StateError(
                    f"{self._database} is paced by {found}, and {len(resting)} of its hosts rest, "
                    f"the last until {format_moment(last)}: a crawl with WALSH_PACE_BY = {unit!r} "
                    f"would not see that; wait, or set WALSH_PACE_BY = {found!r}"
                )
            upsert(connection, choices, {"name": "pace_by", "value": unit})

    def _now(self, connection: Connection) -> float:
        return self._clock() if self._clock else self._database.now(connection)

    def _remember(self, host: str, line: _Line) -> HostTimes:
        self._lines[host] = line
        self._lines.move_to_end(host)
        if len(self._lines) > REMEMBERED:
            self._lines.popitem(last=False)
        return line.times


def _find(connection: Connection, host: str) -> _Line:
    row = _FIND.first(connection, {"key": host})
    return _Line(HostTimes(), None) if row is None else _Line(HostTimes(*row[:-1]), row[-1])


def _replace(connection: Connection, host: str, times: HostTimes, revision: int | None) -> bool:
    """Write a line if it is still the one that was read; False where another came first."""
    values = row_of(times)
    if revision is None:
        return insert_if_new(connection, hosts, {"host": host, "revision": 0, **values})
    values |= {"key": host, "seen": revision, "revision": revision + 1}
    return _UPDATE.run(connection, values) == 1
