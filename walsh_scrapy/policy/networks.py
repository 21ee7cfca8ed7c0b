"""Which addresses are public (R6, decision 16): a public host may not redirect to a private one.

Only literals and names are judged here; what a name resolves to is asked of the resolver, and its
answer brought back to `is_public`.
"""

import re
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final

_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)

#: What `ipaddress.is_global` calls global although no public web server answers there.
_NOT_PUBLIC_4: Final = tuple(
    ip_network(block)
    for block in (
        "192.0.0.0/24",  # IETF protocol assignments (RFC 6890); two hosts of it pass is_global
        "192.31.196.0/24",  # AS112 (RFC 7535)
        "192.52.193.0/24",  # AMT relays (RFC 7450)
        "192.88.99.0/24",  # 6to4 relays (RFC 7526)
        "192.175.48.0/24",  # AS112 (RFC 7534)
        "224.0.0.0/4",  # multicast (RFC 5771)
    )
)
_PUBLIC_6: Final = ip_network("2000::/3")  # all the unicast space IANA has given out so far
_NOT_PUBLIC_6: Final = tuple(
    ip_network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarking, AMT (RFC 2928)
        "2001:db8::/32",  # documentation (RFC 3849)
        "2002::/16",  # 6to4 carries any IPv4 address in it (RFC 3056)
        "2620:4f:8000::/48",  # AS112 (RFC 7534)
        "3fff::/20",  # documentation (RFC 9637)
    )
)

#: Names that never leave the machine or the house (RFC 6761, 6762, 7686, 8375; ICANN: internal).
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
    """Read an IPv4 address in every spelling resolvers accept: `2130706433`, `0x7f.1`, `0177.1`.

    One to four parts, each decimal, octal (`0…`) or hexadecimal (`0x…`); the last one fills the
    bytes that are left, as inet_aton and the URL standard do. None if it is no such address.
    """
    parts = text.removesuffix(".").split(".")
    if len(parts) > 4 or _number(parts[-1]) is None:  # as of nearly every host name
        return None
    numbers = [_number(part) for part in parts]
    *leading, last = (256**4 if number is None else number for number in numbers)
    if any(number > 255 for number in leading) or last >= 256 ** (4 - len(leading)):
        return None
    for position, number in enumerate(leading):
        last += number * 256 ** (3 - position)
    return IPv4Address(last)


def parse_ip(address: str) -> IPv4Address | IPv6Address | None:
    """Read an IP literal: IPv4 in any spelling, IPv6 with or without brackets or a zone id."""
    text = address.strip().removeprefix("[").removesuffix("]")
    if ":" not in text:
        return parse_ipv4(text)
    try:
        return IPv6Address(text.partition("%")[0])
    except ValueError:
        return None


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
    """Tell whether an IP literal belongs to the public internet (decision 16).

    False for everything private, local, reserved, multicast or wrapped (NAT64, 6to4, Teredo),
    and for what is no address at all. IPv4-mapped IPv6 counts as the IPv4 address it carries.
    """
    found = parse_ip(address)
    if isinstance(found, IPv6Address):
        found = found.ipv4_mapped or found
    if found is None or not found.is_global:
        return False
    if isinstance(found, IPv4Address):
        return not any(found in block for block in _NOT_PUBLIC_4)
    return found in _PUBLIC_6 and not any(found in block for block in _NOT_PUBLIC_6)


def is_private_host(host: str) -> bool:
    """Tell whether a host, as `host_of` gives it, is plainly not on the public web (decision 16).

    True for addresses that are not public, for names without a dot and for names under a suffix
    kept for local use (`localhost`, `local`, `internal`, `home.arpa`, ...). "" is no public host.
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
