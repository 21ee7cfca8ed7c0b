"""A web without a proxy: each host at a separate address, with names that only the test knows.

    with DirectWeb(Site("blog.example", pages={"/feed.xml": "<rss/>"})) as web:
        ...  # run a crawler with web.environment, then look at web.log and web.connections

The addresses are in 127.0.0.0/8, all of which is this machine, so no rights are needed. One socket
listens for http and one for https, each at a port that the system chooses. `environment` makes
Python processes use the resolver of the web, and reach ports 80 and 443 of its hosts there. Linux
only.
"""

import asyncio
import math
import os
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from walsh_scrapy.testing.hit import DEFAULT_PORTS, FULL, CountedSocket, Hit, SharedLog
from walsh_scrapy.testing.http1 import Connection, NoHandshakeError, handshake_of, streams
from walsh_scrapy.testing.site import (
    DEAD,
    MISDIRECTED,
    OWN,
    REFUSED,
    UNKNOWN,
    Answer,
    Dns,
    Down,
    Page,
    Site,
    answers_of,
)
from walsh_scrapy.testing.web import Web

#: The address of the first host. Tests may use all addresses below it in answers.
_FIRST: Final = IPv4Address("127.1.0.1")
#: The addresses of DEAD and REFUSED.
DEAD_ADDRESS: Final = "127.0.255.1"
REFUSED_ADDRESS: Final = "127.0.255.2"
_STANDS_FOR: Final = {DEAD: DEAD_ADDRESS, REFUSED: REFUSED_ADDRESS}


def plain(address: str) -> str:
    """Return an address without its scope, and as IPv4 if it is mapped into IPv6."""
    given = ip_address(address.partition("%")[0])
    mapped = given.ipv4_mapped if isinstance(given, IPv6Address) else None
    return str(mapped or given)


def is_loopback(address: str) -> bool:
    """Return True for an address of this machine only: in 127.0.0.0/8, or `::1`."""
    return ip_address(plain(address)).is_loopback


class AddressPlan:
    """Allots addresses in the order of the hosts, and knows which hosts an address is for."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}
        self._hosts: dict[str, tuple[str, ...]] = {}

    def add(self, site: Site) -> None:
        """Give the host of a site an address, and note the addresses that its name leads to."""
        if site.host not in self._own:
            self._own[site.host] = _literal(site.host) or str(_FIRST + len(self._own))
        answers = [each for answer in answers_of(site.dns) for each in answer.addresses]
        for address in (OWN, *answers):
            self._note(plain(self.meant(site.host, address)), site.host)

    def own(self, host: str) -> str:
        """Return the address of a host. Raises KeyError."""
        return self._own[host]

    def meant(self, host: str, address: str) -> str:
        """Return the address that OWN, DEAD or REFUSED stands for, or the address itself."""
        return self._own[host] if address == OWN else _STANDS_FOR.get(address, address)

    def hosts(self, address: str) -> tuple[str, ...]:
        """Return the hosts that answer at an address."""
        return self._hosts.get(plain(address), ())

    def _note(self, address: str, host: str) -> None:
        known = self._hosts.get(address, ())
        self._hosts[address] = known if host in known else (*known, host)


def _literal(host: str) -> str | None:
    """Return a host that is an address of this machine itself."""
    try:
        return host if is_loopback(host) else None
    except ValueError:
        return None


#: `struct tcp_info` of a listening socket: the number of connections in its queue.
_WAITING: Final = struct.Struct("=24xI")
_DEVICE: Final = b"lo"
_MOST_TO_FILL: Final = 8
_FILL_SECONDS: Final = 1.0


def bound(address: str, port: int = 0) -> socket.socket:
    """Return a socket that is bound, as others may be at that port, for clients of this machine.

    Raises OSError.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with suppress(PermissionError):  # since Linux 5.7 everybody may
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def without_answer(address: str, port: int) -> socket.socket:
    """Return a socket whose queue is full and stays so: the kernel drops every further SYN.

    A queue of length 0 holds one connection, which stays there when its client has closed it.
    """
    made = bound(address, port)
    made.listen(0)
    for _ in range(_MOST_TO_FILL):
        if _WAITING.unpack_from(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104))[0]:
            return made
        with socket.socket() as client, suppress(TimeoutError):
            client.settimeout(_FILL_SECONDS)
            client.connect((address, port))
    made.close()
    raise OSError(f"the queue of {address}:{port} does not fill")


@dataclass(frozen=True, slots=True)
class Lookup:
    """One lookup of a name, by the `time.monotonic` of the resolver."""

    name: str  #: lower-case, without a trailing dot
    started: float
    ended: float = math.inf  #: when the answer was sent; infinite until then
    addresses: tuple[str, ...] = ()
    error: int = 0  #: a code of `getaddrinfo`, or 0


#: The system's buffer holds about 250 questions.
_BUFFER_BYTES: Final = 1 << 22

Place = tuple[str, int]


class NameServer(asyncio.DatagramProtocol):
    """Answers lookups one by one, each after its delay, and logs them.

    It answers the processes that `direct/sitecustomize.py` is in. A question is the port and the
    name; the answer is an error code of `getaddrinfo`, or 0, and then one line per address: the
    address, and the port at which the web serves that port of it. `dns_of` returns the answer for a
    name. `places` turns a name, the addresses of an answer and a port into such lines.
    """

    def __init__(
        self,
        dns_of: Callable[[str], Dns],
        places: Callable[[str, Sequence[str], int], list[Place]],
        log: SharedLog[Lookup],
    ) -> None:
        self._dns_of = dns_of
        self._places = places
        self._log = log
        self._counts: Counter[str] = Counter()
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Begin to answer."""
        self._transport = transport
        server: socket.socket = transport.get_extra_info("socket")
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)

    def datagram_received(self, data: bytes, sender: Place) -> None:
        """Answer a question, now or later."""
        number, _, given = data.decode().partition(" ")
        name = given.lower().removesuffix(".")
        self._counts[name] += 1
        answers = answers_of(self._dns_of(name))
        answer = answers[min(self._counts[name], len(answers)) - 1]
        key = self._log.open(Lookup(name, time.monotonic()))
        asyncio.get_running_loop().call_later(
            answer.delay, self._answer, key, name, int(number), answer, sender
        )

    def _answer(self, key: int, name: str, port: int, answer: Answer, sender: Place) -> None:
        places = self._places(name, answer.addresses, port)
        addresses = tuple(address for address, _ in places)
        self._log.change(
            key,
            lambda lookup: replace(
                lookup, ended=time.monotonic(), addresses=addresses, error=answer.error
            ),
        )
        lines = [str(answer.error), *(f"{address} {listens}" for address, listens in places)]
        if self._transport:
            self._transport.sendto("\n".join(lines).encode(), sender)


_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
#: The folder of the module that `environment` brings into each process.
_HOOK: Final = Path(__file__).parent / "direct"
_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x28"  # fatal, handshake_failure (RFC 8446 6)
#: A second port for http, at which a site may listen whose name has the port.
SECOND: Final = "http-alt"
_LOCALHOST: Final = Answer(("127.0.0.1", "::1"))


class DirectWeb(Web):
    """Any number of sites at separate addresses, served in a thread.

    `latency` are seconds that every answer comes later, as over a long line: one round trip for
    TCP, for each flight of TLS, and for each response. `dns`, if set, answers every lookup, for
    example with NO_RESOLVER.
    """

    def __init__(self, *sites: Site, latency: float = 0.0) -> None:
        self.latency = latency
        self.dns: Dns | None = None
        self.ports: dict[str, int] = {}  #: on which it listens, by scheme, and SECOND
        self._ipv6_ports: dict[str, int] = {}
        self._addresses = AddressPlan()
        self._dns: dict[str, Dns] = {}
        self._lookups = SharedLog[Lookup]()
        self._names: asyncio.DatagramTransport | None = None
        self._resolver_port = 0
        self._refused: socket.socket | None = None
        self._dead = set[str]()
        self._silent: list[socket.socket] = []
        super().__init__(*sites)

    def add(self, *sites: Site) -> None:
        """Add sites, even while the web serves; one with the name of an earlier one replaces it."""
        super().add(*sites)
        for site in sites:
            self._addresses.add(site)
            self._dns[site.host] = site.dns
        if self.ports:
            self._let_die(sites)

    @property
    def lookups(self) -> list[Lookup]:
        """Every lookup of a name so far, in the order of their start."""
        return self._lookups.entries()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make a Python process reach this web, without a proxy.

        If a site has `tls`, they also make OpenSSL trust the CA of this web and no other CA.
        """
        proxies = [name for each in _PROXIES for name in (each, each.upper())]
        path = os.pathsep.join(filter(None, (str(_HOOK), os.environ.get("PYTHONPATH"))))
        families = (self.ports, self._ipv6_ports)
        listening = [ports.get(scheme, 0) for ports in families for scheme in DEFAULT_PORTS]
        numbers = " ".join(map(str, (self._resolver_port, *listening)))
        ours = {"PYTHONPATH": path, "WALSH_DIRECT_WEB": numbers}
        return dict.fromkeys(proxies, "") | ours | self._directory.environment

    def address(self, host: str) -> str:
        """Return the address of a host. Raises KeyError for a host that no site is for."""
        return self._addresses.own(host)

    def clear(self) -> None:
        """Remove every hit, closed connection and lookup. The pages go on counting their hits."""
        super().clear()
        self._lookups.clear()

    async def _open_listeners(self) -> None:
        for scheme in DEFAULT_PORTS:
            self.ports[scheme] = self._listen_at("0.0.0.0", scheme)  # noqa: S104 - see _host_at
            with suppress(OSError):  # a machine without IPv6
                self._ipv6_ports[scheme] = self._listen_at("::1", scheme)
        self.ports[SECOND] = self._listen_at("0.0.0.0", "http")  # noqa: S104 - the same
        self._refused = bound(REFUSED_ADDRESS)
        self._let_die(self.sites)
        self._names, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: NameServer(self._dns_of, self._places, self._lookups),
            local_addr=("127.0.0.1", 0),
        )
        self._resolver_port = self._names.get_extra_info("sockname")[1]

    def _close_listeners(self) -> None:
        super()._close_listeners()
        for each in (*self._silent, self._refused, self._names):
            if each:
                each.close()

    def _listen_at(self, address: str, scheme: str) -> int:
        listener = bound(address)
        self._listen(listener, scheme)
        port: int = listener.getsockname()[1]
        return port

    def _let_die(self, sites: Iterable[Site]) -> None:
        """Make the addresses dead that must be so for these sites."""
        for site in sites:
            own = [self.address(site.host)] if site.down is Down.DEAD else []
            named = [DEAD_ADDRESS for each in answers_of(site.dns) if DEAD in each.addresses]
            for address in {*own, *named} - self._dead:
                self._dead.add(address)
                self._silent += [without_answer(address, port) for port in self.ports.values()]

    def _host_at(self, accepted: socket.socket) -> str | None:
        # The sockets listen at every address of the machine: only those of the web are served.
        if not is_loopback(accepted.getsockname()[0]):
            return None
        hosts = self._hosts_at(accepted)
        return hosts[0] if len(hosts) == 1 else ""

    async def _serve(self, accepted: CountedSocket, scheme: str) -> None:
        hosts = self._hosts_at(accepted)

        def page_for(hit: Hit) -> tuple[Hit, Page]:
            if hit.host not in hosts:
                return hit, MISDIRECTED
            self._connections.change(accepted, host=hit.host)
            return self._directory.page_for(hit)

        match self._directory.down(hosts[0]) if hosts else None:
            case Down.MUTE:
                with suppress(ConnectionError):
                    async with streams(accepted) as (reader, _):
                        await reader.read()
                return
            case Down.ALERT:
                with suppress(ConnectionError):
                    await asyncio.get_running_loop().sock_sendall(accepted, _ALERT)
                accepted.close()
                return
        context = self._context(hosts) if scheme == "https" else None
        await asyncio.sleep(self.latency * (2 if context else 1))  # of TCP, and of TLS
        try:
            async with streams(accepted, context) as (reader, writer):
                handshake = handshake_of(writer)
                self._connections.change(accepted, handshake=handshake)
                if handshake == FULL and writer.get_extra_info("ssl_object").version() == "TLSv1.2":
                    await asyncio.sleep(self.latency)  # of the server's second flight
                connection = Connection(
                    reader,
                    writer,
                    page_for,
                    self._log,
                    client=accepted.client,
                    scheme=scheme,
                    latency=self.latency,
                )
                await connection.serve()
        except NoHandshakeError:
            pass  # the record has it

    def _context(self, hosts: Sequence[str]) -> ssl.SSLContext:
        """Return the TLS context of the first host that has one; SNI may choose another.

        Where none has one, it has no certificate, so every handshake fails.
        """

        def by_name(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            if name and name in hosts and (context := self._directory.context_of(name)):
                connection.context = context

        found = [each for host in hosts if (each := self._directory.context_of(host))]
        if len(found) > 1:
            found[0].sni_callback = by_name
        return found[0] if found else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def _hosts_at(self, accepted: socket.socket) -> tuple[str, ...]:
        return self._addresses.hosts(accepted.getsockname()[0])

    def _dns_of(self, name: str) -> Dns:
        if self.dns is not None:
            return self.dns
        return self._dns.get(name, _LOCALHOST if name == "localhost" else UNKNOWN)

    def _places(self, host: str, addresses: Sequence[str], port: int) -> list[Place]:
        """Return where a client reaches a port of a host, by these answers of its name."""
        meant = [self._addresses.meant(host, address) for address in addresses]
        return [(address, self._port(host, address, port)) for address in meant]

    def _port(self, host: str, address: str, port: int) -> int:
        if address == REFUSED_ADDRESS and self._refused:
            refusing: int = self._refused.getsockname()[1]
            return refusing
        scheme = next((each for each, usual in DEFAULT_PORTS.items() if usual == port), None)
        site = self._directory.find(host, port)
        if site and site.key == f"{host}:{port}":
            scheme = "https" if site.tls else "http"
        if scheme is None or not is_loopback(address):
            return port
        return (self._ipv6_ports if ":" in plain(address) else self.ports).get(scheme, port)
