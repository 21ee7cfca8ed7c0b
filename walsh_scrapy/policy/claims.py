"""How much work a worker claims at a time (decision 41). Durations are seconds.

Workers share a state, and each claims hosts with all that is due there. A worker claims little at a
time, so that a fast one gets more than a slow one, and that little is lost if it is killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Requests of work in one claim. A host with more is claimed alone.
WORK_AT_A_TIME: Final = 20
#: While this many hosts are ready, a worker that is alone claims no more. A crawl asks far fewer
#: hosts at once.
ENOUGH: Final = 200
#: The same for a worker that is not alone: enough to look up names and make the next connection.
FEW: Final = 4
#: How long a claim lasts that is not renewed, and how often a worker renews its claims.
CLAIM_SECONDS: Final = 15.0
BEAT_SECONDS: Final = 5.0


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


def enough_ready(workers: int) -> int:
    """Return with how many ready hosts a worker claims no more.

    One that is alone claims ahead, so that the order of its requests is that of decision 6. One of
    several claims more only when hardly any of its hosts is ready.
    """
    return ENOUGH if workers <= 1 else FEW


def one_claim(hosts: Iterable[HostWork]) -> list[HostWork]:
    """Return the first of these hosts: those of one claim."""
    claim: list[HostWork] = []
    left = WORK_AT_A_TIME
    for each in hosts:
        claim.append(each)
        left -= each.requests
        if left <= 0:
            break
    return claim


def surplus(not_begun: Iterable[HostWork]) -> list[HostWork]:
    """Return the hosts that a worker gives back when another one comes: all but one claim."""
    hosts = [*not_begun]
    return hosts[len(one_claim(hosts)) :]
