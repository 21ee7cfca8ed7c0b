"""URLs and hosts, read as browsers read them (WHATWG URL; R6, R7).

Every middleware gets the host of a URL from here, so that no spelling of a URL (case, user info,
backslashes, percent signs, soft hyphens, `0x7f.1`) can evade a blocklist entry or the delay of a
host. Host names are A-labels in lower case (UTS 46), IPv4 addresses dotted decimals, IPv6 addresses
compressed. A text that is no URL with a host, or whose host is impossible, has the host "".

The parser is Ada, which Node uses too. Scrapy's `Request` percent-encodes some characters that the
standard leaves as they are. This module encodes them as well, so that a URL is judged, sent and
stored in one form.

Nothing is resolved here. Callers resolve host names, and pass the addresses to `is_public`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple

from ada_url import join_url, normalize_url

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

SCHEMES: Final = ("http", "https")
#: Schemes of this machine and of the operator's accounts, which no page of the web may use.
LOCAL_SCHEMES: Final = ("data", "file", "s3")
_MAX_HOST_CHARACTERS: Final = 253  # the maximum length of a name in the DNS (RFC 1035 2.3.4)
# Schemes whose URLs have a host, and their default ports.
_DEFAULT_PORTS: Final = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}

#: The maximum length of a source's URL, which is an indexed column of the state: PostgreSQL limits
#: the size of index entries.
MAX_DECLARED_CHARACTERS: Final = 2048
#: The maximum length of the target of a redirect or a link.
MAX_FOLLOWED_CHARACTERS: Final = 4096
#: The maximum number of markdown URLs that a page announces and that are tried.
MAX_ANNOUNCED: Final = 3

# The characters that browsers remove from a URL: at both ends, and everywhere.
_STRIPPED: Final = "".join(map(chr, range(0x21)))  # C0 controls and the space
_REMOVED: Final = str.maketrans("", "", "\t\n\r")
# The characters that Scrapy's Request encodes in path or query, although the standard does not.
_ENCODED: Final = str.maketrans({char: f"%{ord(char):02X}" for char in r"[\]^`{|}"})
_USER_INFO: Final = re.compile(r"[^:/\\?#]*:[/\\]*[^/\\?#]*@")
_BEYOND_ASCII: Final = re.compile(rb"[\x80-\xff]")
# Control characters, but the ones that browsers remove from a URL.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# The parts of a normalized URL. User info and fragment are not captured.
_NORMALIZED: Final = re.compile(
    r"(https?|wss?|ftp)://(?:[^/@]*@)?(\[.*?\]|[^/:]+)(?::([0-9]+))?(/[^?#]*)(\?[^#]+)?"
)
# Each dot of a dot segment may be percent-encoded (RFC 3986 6.2.2.3).
_DOT_SEGMENT: Final = re.compile(r"[^?#]*[/\\](?:\.|%2e){1,2}(?:[/\\?#]|\Z)", re.IGNORECASE)


class _Url(NamedTuple):
    """A URL that can be requested, in the form in which it is sent."""

    scheme: str
    host: str  #: without brackets
    port: str  #: the default port if the URL has none
    base: str  #: scheme, host, and the port unless it is the default
    path: str
    query: str  #: with its `?`; "" if there is none


def is_web(url: str) -> bool:
    """Return True for an http or https URL. Only their hosts are paced."""
    return scheme_of(url) in SCHEMES


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, in lower case."""
    return url.partition(":")[0].lower()


def host_of(url: str) -> str:
    """Return the host of a URL in lower case, as A-labels, without port, user and trailing dot.

    IPv6 addresses are compressed, without brackets; IPv4 addresses are dotted decimals. Returns ""
    if the URL cannot be requested. Never raises.

    >>> host_of("https://user@Bücher.Example.:443/feed")
    'xn--bcher-kva.example'
    >>> host_of("http://0x7f.1/")
    '127.0.0.1'
    """
    parsed = _parse(url)
    return parsed.host if parsed else ""


def canonical_url(url: str) -> str:
    """Return the form of a URL that identifies an entry (R7).

    This is `wire_url` without the trailing slash. The query stays as it is, and so does a slash
    before it, because `/a/?q` and `/a?q` may be different pages. A URL that cannot be requested is
    only stripped. Never raises.

    >>> canonical_url("HTTP://Example.com:80/blog/#top")
    'http://example.com/blog'
    """
    parsed = _parse(url)
    if parsed is None:
        return url.strip(_STRIPPED)
    path = parsed.path if parsed.query else parsed.path.rstrip("/")
    return parsed.base + path + parsed.query


def url_key(url: str) -> int:
    """Return 63 bits of a hash of the canonical URL, the same for all spellings of a URL.

    Among a million URLs the probability that any two share a key is 1 in 18 million.
    """
    digest = sha256(canonical_url(url).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) >> 1


def wire_url(url: str) -> str:
    """Return a URL in the form in which it is sent, which Scrapy's `Request` does not change.

    Scheme and host are in lower case, the host as A-labels, the path without dot segments. Default
    port, user info and fragment are removed. A URL that cannot be requested is only stripped. Never
    raises.

    `Request` alone would encode host names by IDNA 2003, and request `faß.de` from `fass.de`.

    >>> wire_url("http://Example.com:80/blog/#top")
    'http://example.com/blog/'
    """
    parsed = _parse(url)
    return parsed.base + parsed.path + parsed.query if parsed else url.strip(_STRIPPED)


def without_dot_segments(url: str) -> str:
    """Return a URL without `.` and `..` in its path (RFC 3986 5.2.4).

    A percent-encoded dot is a dot too, because servers decode it to find the page. A URL with dot
    segments is returned in the form of `wire_url`, plus its fragment. Any other URL is returned
    unchanged, as is one that cannot be requested. Never raises.

    >>> without_dot_segments("http://example.com/a/%2E%2e/private/./feed?to=/../x")
    'http://example.com/private/feed?to=/../x'
    """
    text = _stripped(url)
    if not _DOT_SEGMENT.match(text) or _parse(text) is None:
        return url
    _, mark, fragment = text.partition("#")
    return wire_url(text) + mark + fragment


def resolve_reference(base: str, reference: bytes) -> str | None:
    r"""Return the http or https URL of a reference in a header (Location, Link) of the page `base`.

    The reference is resolved as browsers do (RFC 3986 5.2). Bytes beyond ASCII are percent-encoded
    as they are, whatever their encoding: `/caf\xe9` becomes `/caf%E9`. Returns None if the URL
    cannot be requested, is longer than `MAX_FOLLOWED_CHARACTERS`, or has a control character, which
    no header may have (RFC 9110 5.5). Never raises.

    >>> resolve_reference("http://a.example/dir/page", b"//b.example/x y")
    'http://b.example/x%20y'
    """
    if _CONTROL.search(reference):
        return None
    text = _BEYOND_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], reference).decode("ascii")
    try:
        target = wire_url(join_url(base, text))
    except ValueError:
        return None
    is_web = origin_of(target).startswith(("http://", "https://"))
    return target if is_web and len(target) <= MAX_FOLLOWED_CHARACTERS else None


def origin_of(url: str) -> str:
    """Return `scheme://host:port`, the key of a robots.txt. The port is always there.

    Returns "" if the URL cannot be requested. Never raises.

    >>> origin_of("https://example.com/feed")
    'https://example.com:443'
    """
    parsed = _parse(url)
    if parsed is None:
        return ""
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return f"{parsed.scheme}://{host}:{parsed.port}"


def robots_url(url: str) -> str:
    """Return the URL of the robots.txt for a URL: same scheme, host and port (RFC 9309 2.3).

    Returns "" if the URL cannot be requested. Never raises.

    >>> robots_url("http://example.com:8080/blog/?page=2")
    'http://example.com:8080/robots.txt'
    """
    parsed = _parse(url)
    return f"{parsed.base}/robots.txt" if parsed else ""


def has_user_info(url: str) -> bool:
    """Return True if a URL contains a user name or a password.

    >>> has_user_info("https://me:secret@example.com/@me")
    True
    """
    return _USER_INFO.match(url) is not None


@lru_cache(maxsize=4096)
def registrable_domain(host: str) -> str:
    """Return the domain under which a host is registered, for `WALSH_PACE_BY = "domain"`.

    It is found in the copy of the public suffix list that publicsuffixlist contains, without its
    private part: all of github.io is one domain, which is the slower choice. Under a top-level
    domain that is not listed, such as `internal`, names have two labels (the list's rule "*"). IP
    addresses and public suffixes are returned unchanged.

    >>> registrable_domain("blog.example.co.uk")
    'example.co.uk'
    """
    if parse_ip(host) is not None:
        return host
    return _suffixes().privatesuffix(host) or host


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    # Imported here: it reads 10,000 rules, which only WALSH_PACE_BY = "domain" needs.
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415

    return PublicSuffixList(only_icann=True)


def _parse(url: str) -> _Url | None:
    # Longer texts, such as the ids of some entries, are parsed as well, but not cached.
    return _cached(url) if len(url) <= MAX_FOLLOWED_CHARACTERS else _parse_uncached(url)


def _parse_uncached(url: str) -> _Url | None:
    try:
        parts = _NORMALIZED.match(normalize_url(url))
    except ValueError:
        return None
    if parts is None:  # another scheme, or no host
        return None
    scheme, host, port, path, query = parts.groups("")
    host = host.removesuffix(".")
    if len(host) > _MAX_HOST_CHARACTERS or "" in host.split("."):  # impossible in the DNS
        return None
    base = f"{scheme}://{host}:{port}" if port else f"{scheme}://{host}"
    return _Url(
        scheme,
        host.strip("[]"),
        port or _DEFAULT_PORTS[scheme],
        base,
        path.translate(_ENCODED),
        query.translate(_ENCODED),
    )


_cached: Final = lru_cache(maxsize=1024)(_parse_uncached)


def _stripped(text: str) -> str:
    """Return a URL without the characters that browsers remove before they parse it."""
    return text.strip(_STRIPPED).translate(_REMOVED)


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
    """Read an IPv4 address in every form that inet_aton accepts.

    It has one to four parts, each decimal, octal (`0…`) or hexadecimal (`0x…`); the last part fills
    the remaining bytes (WHATWG URL). Returns None for any other text. Never raises.

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

    Returns None for any other text. Never raises.
    """
    text = address.strip().removeprefix("[").removesuffix("]")
    if ":" not in text:
        return parse_ipv4(text)
    try:
        return IPv6Address(text.partition("%")[0])
    except ValueError:
        return None


def format_ip(address: IPv4Address | IPv6Address) -> str:
    """Return an address as dotted decimals, or by RFC 5952 in hexadecimal only.

    A host is a key of the state and of the blocklist, so its spelling must never change. The result
    of `str()` did: Python 3.13 writes `::ffff:192.0.2.9`, and 3.12 `::ffff:c000:209`, as browsers.
    """
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        high, low = divmod(int(address.ipv4_mapped), 1 << 16)
        return f"::ffff:{high:x}:{low:x}"
    return str(address)


def is_public(address: str) -> bool:
    """Return True if an IP literal is an address of the public internet.

    False for private, local, reserved, multicast and translated addresses (NAT64, 6to4, Teredo),
    and for a text that is not an address. An IPv4-mapped IPv6 address is judged as its IPv4
    address. Never raises.
    """
    ip = parse_ip(address)
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip is None or not ip.is_global:
        return False
    if isinstance(ip, IPv4Address):
        return not any(ip in block for block in _NOT_PUBLIC_4)
    return ip in _PUBLIC_6 and not any(ip in block for block in _NOT_PUBLIC_6)


def is_private_host(host: str) -> bool:
    """Return True if a host, as `host_of` returns it, is not on the public web.

    That is an address that is not public, a name without a dot, a name under a suffix for local use
    (`localhost`, `local`, `internal`, `home.arpa`, ...), or "". A public name that resolves to a
    private address is not recognized here; see `is_public`. Never raises.
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
