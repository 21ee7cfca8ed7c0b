"""Decides whether a failed connection is the fault of the host or of this machine.

If a DNS server sends no answer, or there is no route, either the host is broken or this machine is
offline. The other connections of the run decide which. In the same way a 502, 503 or 504 that comes
over http through a proxy may be the site's answer or the proxy's. Times are epoch seconds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What the error itself shows. "either": a broken host, or a machine without a network.
Blame: TypeAlias = Literal["host", "machine", "either"]
#: Whose fault a failure is. "unknown": nothing in the run shows yet that the network works.
Fault: TypeAlias = Literal["host", "unknown", "machine"]
#: Whose answer came through a proxy. "gateway": a 502, 503 or 504 that may be the site's.
#: "unreached": the proxy says that it did not reach the site. "unknown": it says so too, but it may
#: reach no site at all. "machine": it does reach none.
ProxyAnswer: TypeAlias = Literal["site", "gateway", "unreached", "unknown", "machine"]

#: After this many failed hosts without a working connection, this machine is taken to be offline.
MAX_FAILED_HOSTS: Final = 5
#: Statuses of a proxy that could not reach a host (RFC 9110 15.6.3 to 15.6.5). The host itself may
#: answer them too.
GATEWAY_STATUSES: Final = frozenset({502, 503, 504})
#: Header fields of answers that a proxy made itself: Squid, proxy.py and others that open tunnels,
#: and the proxies of some vendors.
_OWN_FIELDS: Final = frozenset(
    {
        "x-squid-error",
        "proxy-agent",
        "x-proxy-error",
        "x-crawlera-error",
        "zyte-error",
        "x-luminati-error",
        "x-brd-error",
    }
)


def proves_network(proxy_status: int) -> bool:
    """Return True if a response through a proxy shows that the proxy reaches hosts.

    A 407 comes from the proxy itself: the credentials of this machine are wrong.
    """
    return proxy_status not in GATEWAY_STATUSES and proxy_status != 407


def proxy_error(fields: Iterable[tuple[str, str]]) -> str | None:
    """Return the field with which a proxy says that it made an answer itself; None without one.

    Each field is a name and a value. Of several proxies in a Proxy-Status (RFC 9209) the last one
    is the nearest: a site may have proxies of its own.
    """
    statuses: list[str] = []
    for name, value in fields:
        if name.lower() in _OWN_FIELDS:
            return f"{name}: {value}"
        if name.lower() == "proxy-status":
            statuses.append(value)
    status = ", ".join(statuses)
    return f"Proxy-Status: {status}" if status and _is_own_error(status) else None


def _is_own_error(proxy_status: str) -> bool:
    """Return True if the last member of a Proxy-Status has an error that no server answered."""
    import http_sf  # noqa: PLC0415 - few answers have this header

    try:
        members: Any = http_sf.parse(proxy_status.encode("latin-1"), tltype="list")
    except (ValueError, RecursionError):
        return False
    return any("error" in params and "received-status" not in params for _, params in members[-1:])


class Connectivity:
    """Whether the network of this machine works, as far as one run has seen.

    Any answer of a DNS server proves that it works, and so does a host that accepts or refuses a
    connection. A connection to a proxy proves nothing.
    """

    def __init__(self) -> None:
        self.proven_at: float | None = None  #: the first proof
        self._has_failed_host = False
        self._doubtful: set[str] = set()
        self._working_proxies: set[str] = set()
        # By proxy: the hosts that got a 502, 503 or 504 through it.
        self._gateways: defaultdict[str, set[str]] = defaultdict(set)

    def prove(self, now: float, proxy: str | None = None) -> None:
        """Record that the network works, and that ``proxy`` reaches hosts if there is one."""
        if self.proven_at is None:
            self.proven_at = now
        if proxy is not None:
            self._working_proxies.add(proxy)

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
        hosts = self._doubtful.union(*self._gateways.values())
        return "machine" if len(hosts) >= MAX_FAILED_HOSTS else "unknown"

    def record_proxy_answer(
        self, proxy: str, host: str, status: int, now: float, *, is_own: bool, is_refusal: bool
    ) -> ProxyAnswer:
        """Record an answer for a host that came over http through a proxy; return whose it is.

        ``is_own`` is True if a header says that the proxy made it, ``is_refusal`` if it has a
        Retry-After. A proxy that has given nothing but 502, 503 and 504, for `MAX_FAILED_HOSTS`
        hosts, reaches no host. Until then one that says that it has not reached a host is asked
        once more, because the answers for other hosts may decide.
        """
        if proves_network(status):
            self.prove(now, proxy)
        if status not in GATEWAY_STATUSES or is_refusal:
            return "site"
        hosts = self._gateways[proxy]
        is_first = host not in hosts
        hosts.add(host)
        is_working = proxy in self._working_proxies
        failed = hosts if self.is_decided else hosts | self._doubtful
        if not is_working and len(failed) >= MAX_FAILED_HOSTS:
            return "machine"
        if not is_own:
            return "gateway"
        return "unknown" if is_first and not is_working else "unreached"

    def is_doubtful(self, host: str) -> bool:
        """Whether a host has got a 502, 503 or 504 through a proxy that has reached no host."""
        return any(
            host in hosts
            for proxy, hosts in self._gateways.items()
            if proxy not in self._working_proxies
        )

    @property
    def is_offline(self) -> bool:
        """Whether hosts could not be reached, and nothing shows that this machine is online."""
        return bool(self._doubtful) and not self.is_decided
