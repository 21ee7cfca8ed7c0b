"""A web without a proxy: each host has an address of its own, and a name that only the test knows.

    with DirectWeb(Site("blog.example", pages={"/feed.xml": "<rss/>"})) as web:
        ...  # run a crawler with web.environment, then look at web.log and web.connections

All addresses are in 127.0.0.0/8, which is this machine, so no privileges are needed. One socket
listens for http and one for https, at ports that the system chooses. `environment` makes Python
processes use the web's DNS server, and connect to these ports instead of 80 and 443. Linux only.
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
from walsh_scrapy.testing.serverhttp1 import Connection, NoHandshakeError, handshake_of, streams
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
from walsh_scrapy.testing.web import NO_SUFFIX_LIST, Web

#: The address of the first host. Tests may use lower addresses in DNS answers.
_FIRST: Final = IPv4Address("127.1.0.1")
#: The addresses of DEAD and REFUSED.
DEAD_ADDRESS: Final = "127.0.255.1"
REFUSED_ADDRESS: Final = "127.0.255.2"
_STANDS_FOR: Final = {DEAD: DEAD_ADDRESS, REFUSED: REFUSED_ADDRESS}


def plain(address: str) -> str:
    """Return an address without its scope; an IPv4 address mapped into IPv6 becomes IPv4."""
    parsed = ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped or parsed)


def is_loopback(address: str) -> bool:
    """Return True for an address of this machine only: in 127.0.0.0/8, or `::1`."""
    return ip_address(plain(address)).is_loopback


class AddressPlan:
    """Gives each host an address, and finds the hosts that answer at an address."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._hosts: dict[str, tuple[str, ...]] = {}

    def add(self, site: Site) -> None:
        """Give the site's host an address, and record the addresses of its DNS answers."""
        if site.host not in self._addresses:
            self._addresses[site.host] = _literal(site.host) or str(_FIRST + len(self._addresses))
        answers = [text for answer in answers_of(site.dns) for text in answer.addresses]
        for address in (OWN, *answers):
            self._note(plain(self.resolve(site.host, address)), site.host)

    def address(self, host: str) -> str:
        """Return the address of a host. Raises KeyError for an unknown host."""
        return self._addresses[host]

    def resolve(self, host: str, address: str) -> str:
        """Replace OWN, DEAD and REFUSED by the address that they stand for."""
        return self._addresses[host] if address == OWN else _STANDS_FOR.get(address, address)

    def hosts(self, address: str) -> tuple[str, ...]:
        """Return the hosts that answer at an address."""
        return self._hosts.get(plain(address), ())

    def _note(self, address: str, host: str) -> None:
        hosts = self._hosts.get(address, ())
        self._hosts[address] = hosts if host in hosts else (*hosts, host)


def _literal(host: str) -> str | None:
    """Return the host if it is an address of this machine, and no name."""
    try:
        return host if is_loopback(host) else None
    except ValueError:
        return None


#: The part of `struct tcp_info` with the number of connections in a listening socket's queue.
_WAITING: Final = struct.Struct("=24xI")
_DEVICE: Final = b"lo"
_MAX_CONNECTIONS_TO_FILL: Final = 8
_FILL_SECONDS: Final = 1.0


def bind_socket(address: str, port: int = 0) -> socket.socket:
    """Return a socket that is bound for clients of this machine only. Raises OSError.

    Several sockets may be bound to the same port, at different addresses.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with suppress(PermissionError):  # before Linux 5.7 only root may do this
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE)
        listener.bind((address, port))
    except OSError:
        listener.close()
        raise
    return listener


def fill_queue(address: str, port: int) -> socket.socket:
    """Return a listening socket with a full queue, so that the kernel drops every further SYN.

    A queue of length 0 holds one connection, also after the client has closed it. Raises OSError if
    the queue does not fill.
    """
    listener = bind_socket(address, port)
    listener.listen(0)
    for _ in range(_MAX_CONNECTIONS_TO_FILL):
        if _WAITING.unpack_from(listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104))[0]:
            return listener
        with socket.socket() as client, suppress(TimeoutError):
            client.settimeout(_FILL_SECONDS)
            client.connect((address, port))
    listener.close()
    raise OSError(f"the queue of {address}:{port} does not fill")


@dataclass(frozen=True, slots=True)
class Lookup:
    """One DNS lookup; its times are `time.monotonic` of the web's DNS server."""

    name: str  #: lower-case, without a trailing dot
    started: float
    ended: float = math.inf  #: when the answer was sent; infinite until then
    addresses: tuple[str, ...] = ()
    error: int = 0  #: a code of `getaddrinfo`, or 0


#: Larger than the default, which holds about 250 questions.
_BUFFER_BYTES: Final = 1 << 22

Place = tuple[str, int]


class NameServer(asyncio.DatagramProtocol):
    """Answers lookups, each after its delay, and logs them.

    The questions come from `direct/sitecustomize.py` in the process of a crawler: a port and a
    name. The first line of an answer is an error code of `getaddrinfo`, or 0. Then comes a line for
    each address, with the port at which the web really listens for it. `dns_of` returns the answer
    for a name. `places` returns the pairs of address and port for a name, its addresses and a port.
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
        """Keep the transport, and enlarge its buffer."""
        self._transport = transport
        server: socket.socket = transport.get_extra_info("socket")
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)

    def datagram_received(self, data: bytes, sender: Place) -> None:
        """Log a question, and answer it after its delay."""
        number, _, question = data.decode().partition(" ")
        name = question.lower().removesuffix(".")
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
#: The folder with the module that every Python process of a crawler loads at its start.
_HOOK: Final = Path(__file__).parent / "direct"
_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x28"  # fatal, handshake_failure (RFC 8446 6)
#: The key in `DirectWeb.ports` of a second http port, for sites with a port in their name.
SECOND: Final = "http-alt"
_LOCALHOST: Final = Answer(("127.0.0.1", "::1"))


class DirectWeb(Web):
    """Any number of sites at separate addresses, served in a thread from `start` to `close`.

    `latency` simulates a distant server: the seconds of a round trip, which are added to the TCP
    handshake, to each flight of TLS, and to each response. Set `dns` to answer every lookup in the
    same way, for example with NO_RESOLVER.
    """

    def __init__(self, *sites: Site, latency: float = 0.0) -> None:
        self.latency = latency
        self.dns: Dns | None = None
        self.ports: dict[str, int] = {}  #: the ports at which it listens, by scheme or SECOND
        self._ipv6_ports: dict[str, int] = {}
        self._addresses = AddressPlan()
        self._dns: dict[str, Dns] = {}
        self._lookups = SharedLog[Lookup]()
        self._names: asyncio.DatagramTransport | None = None
        self._resolver_port = 0
        self._refused: socket.socket | None = None
        self._dead: set[str] = set()
        self._silent: list[socket.socket] = []
        super().__init__(*sites)

    def add(self, *sites: Site) -> None:
        """Add sites, also while the web is running; a site replaces one of the same name."""
        super().add(*sites)
        for site in sites:
            self._addresses.add(site)
            self._dns[site.host] = site.dns
        if self.ports:
            self._make_dead(sites)

    @property
    def lookups(self) -> list[Lookup]:
        """All DNS lookups so far, in the order of their start."""
        return self._lookups.entries()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make a Python process reach this web, without a proxy.

        If a site has `tls`, OpenSSL will trust the CA of this web, and no other CA.
        """
        proxies = [variable for name in _PROXIES for variable in (name, name.upper())]
        inherited = os.environ.get("PYTHONPATH")
        path = f"{_HOOK}{os.pathsep}{inherited}" if inherited else str(_HOOK)
        families = (self.ports, self._ipv6_ports)
        listening = [ports.get(scheme, 0) for ports in families for scheme in DEFAULT_PORTS]
        numbers = " ".join(str(port) for port in (self._resolver_port, *listening))
        variables = {"PYTHONPATH": path, "WALSH_DIRECT_WEB": numbers}
        variables |= NO_SUFFIX_LIST | self._directory.environment
        return dict.fromkeys(proxies, "") | variables

    def address(self, host: str) -> str:
        """Return the address of a host. Raises KeyError if there is no site for the host."""
        return self._addresses.address(host)

    def clear(self) -> None:
        """Remove all hits, closed connections and lookups. Pages go on counting their hits."""
        super().clear()
        self._lookups.clear()

    async def _open_listeners(self) -> None:
        for scheme in DEFAULT_PORTS:
            self.ports[scheme] = self._listen_at("0.0.0.0", scheme)  # noqa: S104 - see _host_at
            with suppress(OSError):  # a machine without IPv6
                self._ipv6_ports[scheme] = self._listen_at("::1", scheme)
        self.ports[SECOND] = self._listen_at("0.0.0.0", "http")  # noqa: S104 - the same
        self._refused = bind_socket(REFUSED_ADDRESS)
        self._make_dead(self.sites)
        self._names, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: NameServer(self._dns_of, self._places, self._lookups),
            local_addr=("127.0.0.1", 0),
        )
        self._resolver_port = self._names.get_extra_info("sockname")[1]

    def _close_listeners(self) -> None:
        super()._close_listeners()
        for endpoint in (*self._silent, self._refused, self._names):
            if endpoint:
                endpoint.close()

    def _listen_at(self, address: str, scheme: str) -> int:
        listener = bind_socket(address)
        self._listen(listener, scheme)
        port: int = listener.getsockname()[1]
        return port

    def _make_dead(self, sites: Iterable[Site]) -> None:
        """Make an address stop answering if one of these sites needs that."""
        for site in sites:
            addresses = [self.address(site.host)] if site.down is Down.DEAD else []
            named = [DEAD_ADDRESS for answer in answers_of(site.dns) if DEAD in answer.addresses]
            for address in {*addresses, *named} - self._dead:
                self._dead.add(address)
                self._silent += [fill_queue(address, port) for port in self.ports.values()]

    def _host_at(self, accepted: socket.socket) -> str | None:
        # The sockets listen at every address of this machine, so refuse those that are not
        # loopback.
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
            pass  # the record of the connection shows it

    def _context(self, hosts: Sequence[str]) -> ssl.SSLContext:
        """Return the TLS context for an address that may belong to several hosts.

        It is the context of the first host that has one, unless SNI names another host. If no host
        has a context, the result has no certificate, so every handshake fails.
        """

        def by_name(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            if name and name in hosts and (context := self._directory.context_of(name)):
                connection.context = context

        contexts = [context for host in hosts if (context := self._directory.context_of(host))]
        if len(contexts) > 1:
            contexts[0].sni_callback = by_name
        return contexts[0] if contexts else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def _hosts_at(self, accepted: socket.socket) -> tuple[str, ...]:
        return self._addresses.hosts(accepted.getsockname()[0])

    def _dns_of(self, name: str) -> Dns:
        if self.dns is not None:
            return self.dns
        return self._dns.get(name, _LOCALHOST if name == "localhost" else UNKNOWN)

    def _places(self, host: str, addresses: Sequence[str], port: int) -> list[Place]:
        """Return the addresses and ports at which a client reaches a port of a host."""
        resolved = [self._addresses.resolve(host, address) for address in addresses]
        return [(address, self._port(host, address, port)) for address in resolved]

    def _port(self, host: str, address: str, port: int) -> int:
        if address == REFUSED_ADDRESS and self._refused:
            refusing: int = self._refused.getsockname()[1]
            return refusing
        scheme = next((name for name, usual in DEFAULT_PORTS.items() if usual == port), None)
        site = self._directory.find(host, port)
        if site and site.key == f"{host}:{port}":
            scheme = "https" if site.tls else "http"
        if scheme is None or not is_loopback(address):
            return port
        return (self._ipv6_ports if ":" in plain(address) else self.ports).get(scheme, port)
