"""The host and port of a URL, as browsers read them (decision 5; RFC 3986 3.2, WHATWG URL).

Host names are compared as A-labels in lower case (IDNA 2008 after UTS 46), IPv4 addresses in
dotted decimals, IPv6 addresses compressed and without a zone.
"""

import re
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final, NamedTuple
from urllib.parse import unquote

import idna

from walsh_scrapy.policy.networks import format_ip, parse_ipv4

#: Schemes whose URLs have a host, and their default ports.
DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}

_PORT: Final = re.compile(r":0*([0-9]{1,5})")
_BAD_PORT: Final = 65536
_LONGEST_HOST: Final = 253  # characters; the DNS has no longer names (RFC 1035 2.3.4)
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
    if not (scheme and is_valid and len(host) <= _LONGEST_HOST and port != _BAD_PORT):
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
