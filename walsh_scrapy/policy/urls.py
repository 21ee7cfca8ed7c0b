"""URLs and hosts, as browsers read them (WHATWG URL; R6, R7; decisions 5, 16, 19 and 32).

Every middleware gets the host of a URL from here. So no spelling of a URL (case, user info,
backslashes, percent signs, soft hyphens, `0x7f.1`) can evade a blocklist entry or get a second slot
of a host. Host names are compared as A-labels in lower case (UTS 46), IPv4 addresses in dotted
decimals, IPv6 addresses compressed. A text that no request can go to has no host.

The parser is Ada, which Node uses too. Scrapy's `Request` percent-encodes some characters that the
standard leaves. They are encoded here as well, so a URL is judged, sent and remembered in one form.

A public host may not redirect to a private one. Nothing is resolved here: callers resolve names
themselves, and pass the addresses to `is_public`.
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

_MAX_HOST: Final = 253  # characters; the DNS has no longer names (RFC 1035 2.3.4)
# Schemes whose URLs have a host, and their default ports.
_DEFAULT_PORTS: Final = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}

#: Characters that the URL of a source may have: it is a key of the state, and those of PostgreSQL
#: are limited.
LONGEST_DECLARED: Final = 2048
#: Characters that the target of a redirect or a link may have.
LONGEST_FOLLOWED: Final = 4096
#: URLs that are tried of those that a page announces, until one answers as markdown.
MOST_ANNOUNCED: Final = 3

# Removed by browsers: at both ends, and everywhere.
_STRIPPED: Final = "".join(map(chr, range(0x21)))  # C0 controls and the space
_REMOVED: Final = str.maketrans("", "", "\t\n\r")
# What Scrapy's Request encodes of the characters that the standard leaves in path or query.
_ENCODED: Final = str.maketrans({char: f"%{ord(char):02X}" for char in r"[\]^`{|}"})
_USER_INFO: Final = re.compile(r"[^:/\\?#]*:[/\\]*[^/\\?#]*@")
_BEYOND_ASCII: Final = re.compile(rb"[\x80-\xff]")
# The parts of a URL as the parser writes it, without user info and fragment.
_NORMALIZED: Final = re.compile(
    r"(https?|wss?|ftp)://(?:[^/@]*@)?(\[.*?\]|[^/:]+)(?::([0-9]+))?(/[^?#]*)(\?[^#]+)?"
)
# Each dot of a dot segment may be percent-encoded (RFC 3986 6.2.2.3).
_DOT_SEGMENT: Final = re.compile(r"[^?#]*[/\\](?:\.|%2e){1,2}(?:[/\\?#]|\Z)", re.IGNORECASE)


class _Url(NamedTuple):
    """A URL that a request can go to, in the form in which it is sent."""

    scheme: str
    host: str  #: without brackets
    port: str  #: the port in effect
    base: str  #: scheme, host, and the port unless it is the default
    path: str
    query: str  #: with its `?`; "" if there is none


def host_of(url: str) -> str:
    """Return the host of a URL: lower case, A-labels, no port, user or trailing dot (decision 5).

    IPv6 addresses are compressed, without brackets; IPv4 addresses are dotted decimals. "" if no
    request can go to the URL. Never raises.

    >>> host_of("https://user@Bücher.Example.:443/feed")
    'xn--bcher-kva.example'
    >>> host_of("http://0x7f.1/")
    '127.0.0.1'
    """
    parsed = _parse(url)
    return parsed.host if parsed else ""


def canonical_url(url: str) -> str:
    """Return the form of a URL that identifies its entry (R7, decision 19).

    This is `wire_url` without the trailing slash. The query stays as it is, and so does a slash
    before it, since `/a/?q` and `/a?q` may be different pages. A text that no request can go to is
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
    """Return a number that all spellings of a URL share: 63 bits of a hash of its canonical URL.

    Among a million URLs two share theirs by chance once in 37 million times.
    """
    digest = sha256(canonical_url(url).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) >> 1


def wire_url(url: str) -> str:
    """Return the URL to request, in the form that Scrapy's `Request` keeps.

    Scheme and host are in lower case, the host as A-labels, the path without dot segments (decision
    32). There is no default port, no user info and no fragment, because none is sent. A text that
    no request can go to is only stripped. Never raises.

    `Request` itself encodes host names by IDNA 2003, and would request `faß.de` from `fass.de`.

    >>> wire_url("http://Example.com:80/blog/#top")
    'http://example.com/blog/'
    """
    parsed = _parse(url)
    return parsed.base + parsed.path + parsed.query if parsed else url.strip(_STRIPPED)


def without_dot_segments(url: str) -> str:
    """Return a URL without `.` and `..` in its path (RFC 3986 5.2.4; decision 32).

    A percent-encoded dot counts as a dot. So the gates check the path that servers use to find the
    page. A URL with dot segments is returned as `wire_url` writes it, with its fragment. Others are
    returned as they are, and so is a text that no request can go to. Never raises.

    >>> without_dot_segments("http://example.com/a/%2E%2e/private/./feed?to=/../x")
    'http://example.com/private/feed?to=/../x'
    """
    text = _stripped(url)
    if not _DOT_SEGMENT.match(text) or _parse(text) is None:
        return url
    _, mark, fragment = text.partition("#")
    return wire_url(text) + mark + fragment


def resolve_reference(base: str, reference: bytes) -> str | None:
    r"""Return the http or https URL to request for a reference in a header of the page `base`.

    References (Location, Link) are resolved as browsers do (decision 16; RFC 3986 5.2).
    Bytes beyond ASCII are percent-encoded as they are, whatever their encoding: `/caf\xe9` becomes
    `/caf%E9`. None if no request can go there, or if the URL is longer than `LONGEST_FOLLOWED`
    characters. Never raises.

    >>> resolve_reference("http://a.example/dir/page", b"//b.example/x y")
    'http://b.example/x%20y'
    """
    text = _BEYOND_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], reference).decode("ascii")
    try:
        target = wire_url(join_url(base, text))
    except ValueError:
        return None
    is_web = origin_of(target).startswith(("http://", "https://"))
    return target if is_web and len(target) <= LONGEST_FOLLOWED else None


def origin_of(url: str) -> str:
    """Return `scheme://host:port` with the port in effect, the key of a robots.txt (decision 5).

    "" if no request can go to the URL. Never raises.

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

    "" if no request can go to the URL. Never raises.

    >>> robots_url("http://example.com:8080/blog/?page=2")
    'http://example.com:8080/robots.txt'
    """
    parsed = _parse(url)
    return f"{parsed.base}/robots.txt" if parsed else ""


def has_user_info(url: str) -> bool:
    """Return True if a URL holds a user name or a password.

    >>> has_user_info("https://me:secret@example.com/@me")
    True
    """
    return _USER_INFO.match(url) is not None


@lru_cache(maxsize=4096)
def registrable_domain(host: str) -> str:
    """Return the domain under which a host is registered, for `WALSH_PACE_BY = "domain"`.

    Decision 5. It follows the copy of the public suffix list that publicsuffixlist contains,
    without its private part: all of github.io is one domain, which is the slower choice. Nothing
    is fetched. Addresses, public suffixes and unknown names are returned as they are.

    >>> registrable_domain("blog.example.co.uk")
    'example.co.uk'
    """
    if parse_ip(host) is not None:
        return host
    return _suffixes().privatesuffix(host) or host


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    # It reads 10,000 rules, which only WALSH_PACE_BY = "domain" needs.
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415

    return PublicSuffixList(accept_unknown=False, only_icann=True)


def _parse(url: str) -> _Url | None:
    # Longer texts, such as ids of strangers' entries, are read as well, but not kept in memory.
    return _cached(url) if len(url) <= LONGEST_FOLLOWED else _read(url)


def _read(url: str) -> _Url | None:
    try:
        parts = _NORMALIZED.match(normalize_url(url))
    except ValueError:
        return None
    if parts is None:  # another scheme, or no host
        return None
    scheme, host, port, path, query = parts.groups("")
    host = host.removesuffix(".")
    if len(host) > _MAX_HOST or "" in host.split("."):  # the DNS has no such names
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


_cached: Final = lru_cache(maxsize=1024)(_read)


def _stripped(text: str) -> str:
    """Return a URL without the characters that browsers remove first."""
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
    found = parse_ip(address)
    if isinstance(found, IPv6Address):
        found = found.ipv4_mapped or found
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
