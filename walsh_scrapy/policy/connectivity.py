"""Whether a failed connection is the host's failure or this machine's (decision 29).

A name server that gives no answer, or a network without a route, fits a broken host and a machine
without a network. What else happened in the run decides. Times are epoch seconds.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

#: "either" fits a host that cannot be reached, and a machine without a network.
Blame: TypeAlias = Literal["host", "machine", "either"]
#: "unknown" is a failure of nobody, unless something else shows that the network works.
Fault: TypeAlias = Literal["host", "unknown", "machine"]

#: With so many failed hosts, and no proof of the network, a run ends before it has tried the rest.
MAX_FAILED_HOSTS: Final = 5
#: Answers of a proxy that could not reach a host (RFC 9110 15.6.3 to 15.6.5). The host may have
#: given them too.
GATEWAY_STATUSES: Final = frozenset({502, 503, 504})


def proves_network(proxy_status: int) -> bool:
    """Return True if a response that came through a proxy shows that the proxy reaches hosts.

    A 407 is about the credentials of this machine.
    """
    return proxy_status not in GATEWAY_STATUSES and proxy_status != 407


class Connectivity:
    """What one run knows of the network of this machine.

    Any answer of a name server proves the network, and so does a connection to a host, or a host
    that refuses it. A connection to a proxy proves nothing.
    """

    def __init__(self) -> None:
        self.proven_at: float | None = None  #: the first proof
        self._has_failed_host = False
        self._doubtful: set[str] = set()

    def prove(self, now: float) -> None:
        """Note a proof of the network."""
        if self.proven_at is None:
            self.proven_at = now

    @property
    def is_decided(self) -> bool:
        """Whether failures are the hosts' from now on."""
        return self.proven_at is not None or self._has_failed_host

    def fault_of(self, host: str, blame: Blame, *, was_proven: bool = False) -> Fault:
        """Return whose failure it is that a host could not be reached.

        ``was_proven`` tells that another run proved the network since the source of the failed
        request was visited last.
        """
        if blame != "either":
            self._has_failed_host = self._has_failed_host or blame == "host"
            return blame
        if self.is_decided or was_proven:
            return "host"
        self._doubtful.add(host)
        return "machine" if len(self._doubtful) >= MAX_FAILED_HOSTS else "unknown"

    @property
    def is_offline(self) -> bool:
        """Whether a host could not be reached, and every such failure may be this machine's."""
        return bool(self._doubtful) and not self.is_decided
