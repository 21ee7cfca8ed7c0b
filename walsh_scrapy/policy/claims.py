"""Which hosts come first, and how much a worker claims at a time (decisions 6 and 41).

Workers share a state, and each claims hosts with all that is due there. A worker claims little at a
time, so that a fast one gets more than a slow one, and that little is lost if it is killed.
Durations are seconds.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

T = TypeVar("T")


class HostWork(NamedTuple):
    """A host that has due sources."""

    host: str  #: as it is paced
    sources: int  #: how many are due
    since: float = 0.0  #: since when the first of them is due; 0 for a new one
    position: float = 0.0  #: in the file, of the first of them

    @property
    def requests(self) -> int:
        """The requests that it takes: its robots.txt, and one for each source."""
        return self.sources + 1


def in_order(
    hosts: Iterable[HostWork], intervals: Mapping[str, float], late: Collection[str] = ()
) -> list[HostWork]:
    """Return hosts in the order in which a run begins them.

    The host with the most paced work goes first, by ``intervals``, the known spacings. Hosts that
    lately did not answer (``late``) go last. A frontier that gets the requests in this order takes
    no longer than one that has all of them from the start.
    """

    def order(work: HostWork) -> tuple[bool, float, float, float]:
        paced = work.sources * intervals.get(work.host, 1.0)
        return work.host in late, -paced, work.since, work.position

    return sorted(hosts, key=order)


def start_order(
    waiting: Iterable[tuple[str, float, T]],
    intervals: Mapping[str, float],
    late: Collection[str] = (),
) -> list[T]:
    """Return the items of a run in the order in which they are requested, host by host.

    ``waiting`` has tuples of host, the time since when the item is due, and the item. Within a
    host, the item that is due longest goes first. So each source gets its turn, even on a host that
    allows one request a day.
    """
    items: dict[str, list[tuple[float, T]]] = {}
    for host, since, item in waiting:
        items.setdefault(host, []).append((since, item))
    for of_host in items.values():
        of_host.sort(key=itemgetter(0))
    hosts = [HostWork(host, len(queue), queue[0][0]) for host, queue in items.items()]
    return [item for work in in_order(hosts, intervals, late) for _, item in items[work.host]]
