"""The addresses of a `DirectWeb`, one of its own for each host, and the sockets at them."""

import socket
import struct
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from walsh_scrapy.testing.names import DEAD, OWN, REFUSED, answers_of
from walsh_scrapy.testing.site import Site

#: Of the first host. Tests may use all addresses below it in answers.
_FIRST: Final = IPv4Address("127.1.0.1")
#: What stands in the place of DEAD and REFUSED.
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


#: `struct tcp_info` of a listening socket: how many connections wait in its queue.
_WAITING: Final = struct.Struct("=24xI")
_DEVICE: Final = b"lo"
_MOST_TO_FILL: Final = 8
_FILL_SECONDS: Final = 1.0


def bound(address: str, port: int = 0) -> socket.socket:
    """Return a socket that is bound, beside others at that port, for clients of this machine only.

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
