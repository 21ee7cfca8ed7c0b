"""Decides whether a failed connection is the fault of the host or of this machine.

If a DNS server sends no answer, or there is no route, either the host is broken or this machine is
offline. The other connections of the run decide which. Times are epoch seconds.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

#: What the error itself shows. "either": a broken host, or a machine without a network.
Blame: TypeAlias = Literal["host", "machine", "either"]
#: Whose fault a failure is. "unknown": nothing in the run shows yet that the network works.
Fault: TypeAlias = Literal["host", "unknown", "machine"]

#: After this many failed hosts without a working connection, this machine is taken to be offline.
MAX_FAILED_HOSTS: Final = 5
#: Statuses of a proxy that could not reach a host (RFC 9110 15.6.3 to 15.6.5). The host itself may
#: answer them too.
GATEWAY_STATUSES: Final = frozenset({502, 503, 504})


def proves_network(proxy_status: int) -> bool:
    """Return True if a response through a proxy shows that the proxy reaches hosts.

    A 407 comes from the proxy itself: the credentials of this machine are wrong.
    """
    return proxy_status not in GATEWAY_STATUSES and proxy_status != 407


class Connectivity:
    """Whether the network of this machine works, as far as one run has seen.

    Any answer of a DNS server proves that it works, and so does a host that accepts or refuses a
    connection. A connection to a proxy proves nothing.
    """

    def __init__(self) -> None:
        self.proven_at: float | None = None  #: the first proof
        self._has_failed_host = False
        self._doubtful: set[str] = set()

    def prove(self, now: float) -> None:
        """Record that the network works."""
        if self.proven_at is None:
            self.proven_at = now

    @property
    def is_decided(self) -> bool:
        """Whether failures from now on are the fault of the hosts."""
        return self.proven_at is not None or self._has_failed_host

    def record_failure(self, host: str, blame: Blame, *, was_proven: bool = False) -> Fault:
        """Record that a host could not be reached, and return whose fault it is.

        ``was_proven`` is True if another run has seen the network work since the last visit of the
        source.
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
        """Whether hosts could not be reached, and nothing shows that this machine is online."""
        return bool(self._doubtful) and not self.is_decided
