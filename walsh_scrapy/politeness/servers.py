"""The addresses by which requests are paced, with ``WALSH_PACE_BY = "address"`` (decision 5)."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from scrapy.exceptions import DownloadFailedError

from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.hosttimes import NO_SERVER, PaceBy, Server
from walsh_scrapy.runtime.requests import mark, marks_of
from walsh_scrapy.wire.unreachable import NotConnected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Request

    from walsh_scrapy.options import Options
    from walsh_scrapy.runtime.network import Network
    from walsh_scrapy.state.ledger import LeaseResult

#: Seconds after which a host that did not ask when its turn came has left the line: it has no more
#: work, or none of it may be sent.
_LATE: Final = 5.0


class Lines:
    """The hosts of a crawl that wait for an address, in the order in which they first asked.

    Without lines, all names of an address would ask each time that one of them may go. Whoever asks
    when the address is ready gets it: a line only says when to ask. ``longest`` is the longest wait
    for a place in it. Times are seconds of a clock that never jumps.
    """

    def __init__(self, spacing: float, longest: float) -> None:
        self._spacing, self._longest = spacing, longest
        self._lines: dict[str, dict[str, float]] = {}  # when each host asks again, by address

    def wait(self, host: str, address: str, seconds: float, now: float) -> float:
        """Return the seconds after which a host asks again.

        ``seconds`` are those until its address may be ready; one host goes each ``spacing``.
        """
        line = self._lines.setdefault(address, {})
        wait, gone = seconds, list[str]()
        for other, asks_at in line.items():
            if other == host or wait >= self._longest:
                break
            if asks_at > now - _LATE:
                wait += self._spacing
            else:
                gone.append(other)
        for other in gone:
            del line[other]
        wait = max(seconds, min(wait, self._longest))
        line[host] = now + wait
        return wait

    def leave(self, host: str, addresses: Iterable[str]) -> None:
        """Take a host out of its lines: it has its turn."""
        for address in addresses:
            line = self._lines.get(address, {})
            line.pop(host, None)
            if not line:
                self._lines.pop(address, None)


class Servers:
    """Looks up the addresses of a request at its turn; it is connected to no others.

    By host and by domain there is nothing to look up.
    """

    def __init__(self, options: Options, network: Network) -> None:
        self._network = network
        self._is_in_use = options.pace_by is PaceBy.ADDRESS
        self._spacing = options.min_interval
        self._lines = Lines(options.min_interval, options.max_wait)
        self._excepted = tuple(map(ip_network, options.shared_networks))

    async def look_up(self, request: Request) -> None:
        """Mark a request with its addresses, or with why there are none: its download will fail.

        Raises Denied for a request with a proxy of its own, which would look up the name itself.
        """
        if not self._is_in_use:
            return
        if request.meta.get("proxy"):
            raise Denied("pacing", "by address no request may have a proxy, which hides it")
        try:
            mark(request, found=await self._network.find(request.url))
        except NotConnected as error:
            mark(request, found=error)
        except DownloadFailedError:  # the download will fail for the same reason
            mark(request, found=None)

    def of(self, request: Request) -> Server:
        """Return the server that a request is sent to."""
        found = marks_of(request).found
        if found is None or isinstance(found, NotConnected):
            return NO_SERVER
        return Server.at(found.hosts, self._spacing, self._excepted)

    def wait(self, host: str, server: Server, turn: LeaseResult, now: float) -> float:
        """Return the seconds after which a host asks again, or 0: it has its turn.

        ``now`` is by a clock that never jumps. No place in a line is a reason to defer a request.
        """
        if not turn.wait:
            self._lines.leave(host, server.rows)
        if not turn.address:
            return turn.wait
        return self._lines.wait(host, turn.address, turn.wait, now)

    def address(self, request: Request) -> str | None:
        """Return the address that a request was sent to; None if it is not paced by that."""
        connected = marks_of(request).connected
        return connected and self.of(request).address(connected)
