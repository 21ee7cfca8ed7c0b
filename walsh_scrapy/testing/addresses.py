"""The addresses of a `DirectWeb`: one of its own for each host, and the hosts of an address."""

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


class Addresses:
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
