"""Hosts: how the host and port of a URL are read, and which are public (decisions 5 and 16, R6).

Host and port are read as browsers read them (RFC 3986 3.2, WHATWG URL). Host names are compared as
A-labels in lower case (IDNA 2008 after UTS 46), IPv4 addresses in dotted decimals, IPv6 addresses
compressed and without a zone.

A public host may not redirect to a private one. Nothing is resolved here: callers resolve names
themselves, and pass the addresses to `is_public`.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final, NamedTuple
from urllib.parse import unquote

import idna

_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)

#: Networks without public web servers for which `ipaddress.is_global` is true.
_NOT_PUBLIC_4: Final = tuple(
    ip_network(block)
    for block in (
        "192.0.0.0/24",  # IETF protocol assignments (RFC 6890); is_global is true for two addresses
        "192.31.196.0/24",  # AS112 (RFC 7535)
        "192.52.193.0/24",  # AMT relays (RFC 7450)
        "192.88.99.0/24",  # 6to4 relays (RFC 7526)
        "192.175.48.0/24",  # AS112 (RFC 7534)
        "224.0.0.0/4",  # multicast (RFC 5771)
    )
)
_PUBLIC_6: Final = ip_network("2000::/3")  # all unicast addresses that IANA has assigned so far
_NOT_PUBLIC_6: Final = tuple(
    ip_network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarking, AMT (RFC 2928)
        "2001:db8::/32",  # documentation (RFC 3849)
        "2002::/16",  # 6to4: contains any IPv4 address (RFC 3056)
        "2620:4f:8000::/48",  # AS112 (RFC 7534)
        "3fff::/20",  # documentation (RFC 9637)
    )
)

#: Names for one machine or one local network (RFC 6761, 6762, 7686, 8375; ICANN: internal).
_LOCAL_SUFFIXES: Final = (
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "home.arpa",
    "onion",
)


def parse_ipv4(text: str) -> IPv4Address | None:
    """Read an IPv4 address in every form that resolvers accept, as inet_aton does.

    One to four parts, each decimal, octal (`0…`) or hexadecimal (`0x…`); the last part fills the
    remaining bytes (WHATWG URL). None if the text is not such an address. Never raises.

    >>> parse_ipv4("0x7f.1"), parse_ipv4("2130706433"), parse_ipv4("example.com")
    (IPv4Address('127.0.0.1'), IPv4Address('127.0.0.1'), None)
    """
    parts = text.removesuffix(".").split(".")
    if len(parts) > 4 or _number(parts[-1]) is None:  # true for nearly all host names
        return None
    numbers = [_number(part) for part in parts]
    *leading, last = (256**4 if number is None else number for number in numbers)
    if any(number > 255 for number in leading) or last >= 256 ** (4 - len(leading)):
        return None
    for position, number in enumerate(leading):
        last += number * 256 ** (3 - position)
    return IPv4Address(last)


def parse_ip(address: str) -> IPv4Address | IPv6Address | None:
    """Read an IP literal: IPv4 in any form, IPv6 with or without brackets and zone.

    None if the text is not an address. Never raises.
    """
    text = address.strip().removeprefix("[").removesuffix("]")
    if ":" not in text:
        return parse_ipv4(text)
    try:
        return IPv6Address(text.partition("%")[0])
    except ValueError:
        return None


def plain_ip(address: str) -> IPv4Address | IPv6Address | None:
    """Read an IP literal as `parse_ip` does; an IPv4-mapped IPv6 address is its IPv4 address."""
    found = parse_ip(address)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def format_ip(address: IPv4Address | IPv6Address) -> str:
    """Return the one spelling of an address: dotted decimals, or RFC 5952 in hexadecimal only.

    A host is a key of the state and of the blocklist, so its spelling must never change. `str()`
    does: Python 3.13 writes `::ffff:192.0.2.9` where 3.12 writes `::ffff:c000:209`, as browsers do.
    """
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        high, low = divmod(int(address.ipv4_mapped), 1 << 16)
        return f"::ffff:{high:x}:{low:x}"
    return str(address)


def is_public(address: str) -> bool:
    """Return True if an IP literal is an address of the public internet (decision 16).

    False for private, local, reserved, multicast and translated addresses (NAT64, 6to4, Teredo),
    and for a text that is not an address. An IPv4-mapped IPv6 address counts as its IPv4 address.
    Never raises.
    """
    found = plain_ip(address)
    if found is None or not found.is_global:
        return False
    if isinstance(found, IPv4Address):
        return not any(found in block for block in _NOT_PUBLIC_4)
    return found in _PUBLIC_6 and not any(found in block for block in _NOT_PUBLIC_6)


def is_private_host(host: str) -> bool:
    """Return True if a host, as `host_of` returns it, is not on the public web (decision 16).

    These are addresses that are not public, names without a dot, and names under a suffix for local
    use (`localhost`, `local`, `internal`, `home.arpa`, ...), and "". A name that resolves to a
    private address is found only by `is_public`. Never raises.
    """
    if parse_ip(host) is not None:
        return not is_public(host)
    name = host.lower().rstrip(".")
    return "." not in name or any(name.endswith("." + suffix) for suffix in _LOCAL_SUFFIXES)


def _number(part: str) -> int | None:
    if not _NUMBER.fullmatch(part):
        return None
    if part[:2] in {"0x", "0X"}:
        return int(part[2:] or "0", 16)
    if part[0] == "0":
        return None if part.strip("01234567") else int(part, 8)
    return int(part) if len(part) <= 10 else 256**4


LONGEST_HOST: Final = 253  #: characters; the DNS has no longer names (RFC 1035 2.3.4)
#: Schemes whose URLs have a host, and their default ports.
DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}

_PORT: Final = re.compile(r":0*([0-9]{1,5})")
_BAD_PORT: Final = 65536
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\"#%/:<>?@\[\\\]^`{|}\x7f]")  # in every host
_ASCII_LOWER: Final = str.maketrans({chr(65 + n): chr(97 + n) for n in range(26)})


class Authority(NamedTuple):
    """The host and port of a URL."""

    host: str  #: without brackets
    netloc: str  #: host, and port unless it is the default; "" if no request can go there
    port: int | None  #: the port in effect; None for schemes without a default

    @property
    def host_and_port(self) -> str:
        """The host, and the port in effect if there is one."""
        return _with_brackets(self.host) + ("" if self.port is None else f":{self.port}")


def authority_of(scheme: str, text: str) -> Authority | None:
    """Read host and port, without user info; None if there is no host. Never raises."""
    # Texts that are longer than any host name are read as well, but not cached.
    return _cached(scheme, text) if len(text) < 300 else _read(scheme, text)


def _read(scheme: str, text: str) -> Authority | None:
    name, port_text = _split_port(text)
    host = _ipv6(name) if name.startswith("[") else _ascii_host(name)
    if not host:
        return None
    default = DEFAULT_PORTS.get(scheme)
    port = _port(port_text, default)
    is_valid = ":" in host or (host.isascii() and not _FORBIDDEN.search(host))
    if not (scheme and is_valid and len(host) <= LONGEST_HOST and port != _BAD_PORT):
        return Authority(host, "", None)
    netloc = _with_brackets(host) + ("" if port == default else f":{port}")
    return Authority(host, netloc, port)


_cached: Final = lru_cache(maxsize=4096)(_read)


def _split_port(text: str) -> tuple[str, str]:
    inside = text.find("]") if text.startswith("[") else 0
    if inside < 0:
        return "", ""
    colon = text.find(":", inside)
    return (text, "") if colon < 0 else (text[:colon], text[colon:])


def _port(text: str, default: int | None) -> int | None:
    if text in {"", ":"}:
        return default
    digits = _PORT.fullmatch(text)
    return min(int(digits[1]), _BAD_PORT) if digits else _BAD_PORT


def _with_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _ipv6(text: str) -> str:
    if not text.endswith("]"):
        return ""
    try:
        return format_ip(IPv6Address(text[1:-1].partition("%")[0]))
    except ValueError:
        return ""


def _ascii_host(text: str) -> str:
    decoded = unquote(text, errors="replace") if "%" in text else text
    mapped = _a_labels(decoded)
    if mapped is None or _FORBIDDEN.search(mapped):
        return text.translate(_ASCII_LOWER).rstrip(".")  # no resolver knows such a name
    name = mapped.rstrip(".")
    address = parse_ipv4(name)
    return format_ip(address) if address else name


def _a_labels(host: str) -> str | None:
    if host.isascii():
        return host.lower()
    try:
        labels = idna.uts46_remap(host, std3_rules=False).split(".")
        return ".".join(map(_a_label, labels))
    except (idna.IDNAError, UnicodeError):
        return None


def _a_label(label: str) -> str:
    if label.isascii():
        return label
    try:
        return idna.alabel(label).decode("ascii")
    except idna.IDNAError:
        # IDNA 2008 does not allow emoji, but browsers request such hosts all the same.
        return "xn--" + label[:64].encode("punycode").decode("ascii")
