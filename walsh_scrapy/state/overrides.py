"""Overrides: what the operator changed about a host by hand, each with its reason (decision 31).

The operator may give a host a longer delay, and may end its hold. The next `begin` reads both from
the row of the host. A source that is resumed, accepted or forgotten is recorded
here too. Overrides are kept permanently,
so that the operator can answer for them.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from sqlalchemy import insert, update

from walsh_scrapy.state.database import clock_of
from walsh_scrapy.state.ownership import IS_HOST, find, insert_host, lock, number_param
from walsh_scrapy.state.tables import hosts, overrides

if TYPE_CHECKING:
    from sqlalchemy import Connection

OverrideName: TypeAlias = Literal["release", "delay", "resume", "accept", "forget"]


@dataclass(frozen=True, slots=True)
class Override:
    """One change by the operator."""

    made_at: float  #: epoch seconds
    host: str
    override: OverrideName
    seconds: float  #: the new delay, or the rest of the hold that was ended
    reason: str
    url: str | None = None  #: the source that was resumed, accepted or forgotten
    requests: int | None = None  #: the requests that were forgotten


_SET_DELAY_SQL: Final = (
    update(hosts)
    .where(IS_HOST, hosts.c.operator_delay != number_param("seconds"))
    .values(operator_delay=number_param("seconds"))
)
_RELEASE_SQL: Final = update(hosts).where(IS_HOST).values(hold_until=0.0, hold_by="", hold_status=0)


def set_operator_delay(connection: Connection, host: str, seconds: float, reason: str) -> float:
    """Give a host a delay of at least ``seconds`` permanently; 0 ends that.

    The override is recorded if it changes anything. Return the delay that the host has now.
    """
    params = {"key": host, "worker": "", "seconds": seconds, **clock_of(connection)}
    if seconds:
        connection.execute(insert_host(connection.dialect.name), params)
    is_changed = connection.execute(_SET_DELAY_SQL, params).rowcount == 1
    snapshot = find(connection, host)
    if is_changed:
        record_override(connection, Override(snapshot.now, host, "delay", seconds, reason))
    return snapshot.times.delay_with()


def release_hold(connection: Connection, host: str, reason: str) -> float:
    """End the hold of a host, and record that with the reason.

    Return the seconds that were left of the hold. If there was no hold that is 0, and nothing is
    recorded.
    """
    snapshot = lock(connection, host)
    if snapshot is None or not snapshot.hold:
        return 0.0
    connection.execute(_RELEASE_SQL, {"key": host})
    record_override(connection, Override(snapshot.now, host, "release", snapshot.hold, reason))
    return snapshot.hold


def record_override(connection: Connection, override: Override) -> None:
    """Record a change of the operator, within its transaction."""
    names = (field.name for field in fields(Override))
    connection.execute(insert(overrides), dict(zip(names, astuple(override), strict=True)))
