"""URLs and hosts, read as browsers read them (WHATWG URL; R6, R7; decisions 5, 16, 19 and 32).

Every middleware gets the host of a URL from here. So no spelling of a URL (case, user info,
backslashes, percent signs, soft hyphens, `0x7f.1`) can evade a blocklist entry or get a second slot
of a host. Host names are compared as A-labels in lower case (IDNA 2008 after UTS 46), IPv4
addresses in dotted decimals, IPv6 addresses compressed and without a zone.

A public host may not redirect to a private one. Nothing is resolved here: callers resolve names
themselves, and pass the addresses to `is_public`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urljoin

import idna

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

_LONGEST_HOST: Final = 253  # characters; the DNS has no longer names (RFC 1035 2.3.4)
# Schemes whose URLs have a host, and their default ports.
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}

_PORT: Final = re.compile(r":0*([0-9]{1,5})")
_BAD_PORT: Final = 65536
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\"#%/:<>?@\[\\\]^`{|}\x7f]")  # in every host
_ASCII_LOWER: Final = str.maketrans({chr(65 + n): chr(97 + n) for n in range(26)})

#: Characters that the URL of a source may have: it is a key of the state, and those of PostgreSQL
#: are limited.
LONGEST_DECLARED: Final = 2048
#: Characters that the target of a redirect or a link may have.
LONGEST_FOLLOWED: Final = 4096
#: URLs that are tried of those that a page announces, until one answers as markdown.
MOST_ANNOUNCED: Final = 3

_STRIPPED: Final = "".join(map(chr, range(0x21)))  # C0 controls and the space, at both ends
_REMOVED: Final = str.maketrans("", "", "\t\n\r")  # everywhere
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|(?=//)", re.ASCII)
_USER_INFO: Final = re.compile(r"[^:/\\?#]*:[/\\]*[^/\\?#]*@")
_BEYOND_ASCII: Final = re.compile(rb"[\x80-\xff]")
_AFTER_PATH: Final = re.compile(r"[?#]")
_AFTER_AUTHORITY: Final = re.compile(r"[/?#]")
# Each dot of a dot segment may be percent-encoded (RFC 3986 6.2.2.3).
_DOT: Final = r"(?:\.|%2e)"
_HAS_DOT_SEGMENT: Final = re.compile(rf"/{_DOT}{{1,2}}(?:/|\Z)", re.IGNORECASE)
_ONE_DOT: Final = re.compile(_DOT, re.IGNORECASE)
_TWO_DOTS: Final = re.compile(_DOT * 2, re.IGNORECASE)
# Most URLs are simple. For them this finds the host without a full parse.
_NAME: Final = r"((?:[a-z0-9_-]+\.)*[a-z][a-z0-9_-]*)"
_SIMPLE: Final = re.compile(rf"https?://{_NAME}(?=(?::[0-9]*)?(?:[/?#]|\Z))", re.ASCII)
# Many are plain, which is read off them in a tenth of the time of a full parse.
_SAFE: Final = r"\-A-Za-z0-9_~!$&()*+,;=:@"
_PLAIN: Final = re.compile(
    rf"(https?)://(?=[^/]{{1,{_LONGEST_HOST}}}/){_NAME}"
    rf"((?:/(?:[{_SAFE}][{_SAFE}.]*)?)+(?:\?[{_SAFE}./]+)?)",
    re.ASCII,
)


class _Authority(NamedTuple):
    """The host and port of a URL."""

    host: str  #: without brackets
    netloc: str  #: host, and port unless it is the default; "" if no request can go there
    port: int | None  #: the port in effect; None for schemes without a default

    @property
    def host_and_port(self) -> str:
        """The host, and the port in effect if there is one."""
        return _with_brackets(self.host) + ("" if self.port is None else f":{self.port}")


class _Url(NamedTuple):
    scheme: str  # in lower case; "" for `//host/path`
    authority: _Authority
    tail: str  # path, query and fragment

    @property
    def base(self) -> str:
        return f"{self.scheme}://{self.authority.netloc}"


def is_plain(url: str) -> bool:
    """Return True for a URL that is requested as it is: `wire_url` and Scrapy change nothing.

    False for some others that they would not change either. Never raises.

    >>> is_plain("https://example.com/feed?page=2"), is_plain("https://example.com/%7Eme")
    (True, False)
    """
    return _PLAIN.fullmatch(url) is not None


def host_of(url: str) -> str:
    """Return the host of a URL: lower case, A-labels, no port, user or trailing dot (decision 5).

    IPv6 addresses are compressed, without brackets and zone; IPv4 addresses are dotted decimals.
    "" if the URL has no host. Never raises.

    >>> host_of("https://user@Bücher.Example.:443/feed")
    'xn--bcher-kva.example'
    >>> host_of("http://0x7f.1/")
    '127.0.0.1'
    """
    if simple := _SIMPLE.match(url):
        return simple[1]
    parsed = _parse(url)
    return parsed.authority.host if parsed else ""


def canonical_url(url: str) -> str:
    """Return the form of a URL that identifies its entry (R7, decision 19).

    Without fragment, trailing slash, dot segments, default port and user info (which is never
    sent); scheme and host in lower case, the host as A-labels. The query stays as it is, and so
    does a slash before it, since `/a/?q` and `/a?q` may be different pages. A text that is not a
    URL with a host is only stripped. Never raises.

    >>> canonical_url("HTTP://Example.com:80/blog/#top")
    'http://example.com/blog'
    """
    parsed = _requestable(url)
    if parsed is None:
        return url.strip(_STRIPPED)
    path, mark, query = parsed.tail.partition("#")[0].partition("?")
    if mark:
        return f"{parsed.base}{path or '/'}?{query}".rstrip(_STRIPPED)
    return parsed.base + _without_end(path)


def url_key(url: str) -> int:
    """Return a number that all spellings of a URL share: 63 bits of a hash of its canonical URL.

    Among a million URLs two share theirs by chance once in 37 million times.
    """
    digest = sha256(canonical_url(url).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) >> 1


def wire_url(url: str) -> str:
    """Return the URL to request: scheme and host as in `canonical_url`, without a fragment.

    The path stays as it is, except for its dot segments (decision 32). Scrapy encodes host names by
    IDNA 2003 and would request `faß.de` from `fass.de`. The host of this URL is ASCII, so the gates
    check the host that is requested. Never raises.

    >>> wire_url("http://Example.com:80/blog/#top")
    'http://example.com/blog/'
    """
    parsed = _requestable(url)
    if parsed is None:
        return url.strip(_STRIPPED)
    tail = parsed.tail.partition("#")[0].rstrip(_STRIPPED)
    slash = "" if tail.startswith("/") else "/"
    return f"{parsed.base}{slash}{tail}"


def without_dot_segments(url: str) -> str:
    """Return a URL without `.` and `..` in its path (RFC 3986 5.2.4; decision 32).

    A percent-encoded dot counts as a dot. So the gates check the path that servers use to find the
    page. Query and fragment stay as they are, and so does a URL that has no dot segments or no
    host. Never raises.

    >>> without_dot_segments("http://example.com/a/%2E%2e/private/./feed?to=/../x")
    'http://example.com/private/feed?to=/../x'
    """
    before = url if (found := _AFTER_PATH.search(url)) is None else url[: found.start()]
    if not _HAS_DOT_SEGMENT.search(replace_backslashes(strip_controls(before))):
        return url
    parsed = _requestable(url)
    return url if parsed is None else parsed.base + parsed.tail


def resolve_reference(base: str, reference: bytes) -> str | None:
    r"""Return the http or https URL to request for a reference in a header of the page `base`.

    References (Location, Link) are resolved as browsers do (decision 16; RFC 3986 5.2).
    Bytes beyond ASCII are percent-encoded as they are, whatever their encoding: `/caf\xe9` becomes
    `/caf%E9`. None if no request can go there, or if the URL is longer than `LONGEST_FOLLOWED`
    characters. Never raises.

    >>> resolve_reference("http://a.example/dir/page", b"//b.example/x y")
    'http://b.example/x%20y'
    """
    from w3lib.url import safe_url_string  # noqa: PLC0415 - slow to import, and seldom needed

    text = _BEYOND_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], reference).decode("ascii")
    try:
        absolute = _join(base, replace_backslashes(strip_controls(text)))
        target = safe_url_string(wire_url(absolute))
    except ValueError:
        return None
    origin = origin_of(absolute)
    # Without its last `?` or `:` a text that no request can go to may become one with a host.
    is_web = origin.startswith(("http://", "https://")) and origin == origin_of(target)
    return target if is_web and len(target) <= LONGEST_FOLLOWED else None


def origin_of(url: str) -> str:
    """Return `scheme://host:port` with the port in effect, the key of a robots.txt (decision 5).

    "" if no request can go to the URL. Never raises.

    >>> origin_of("https://example.com/feed")
    'https://example.com:443'
    """
    parsed = _requestable(url)
    return f"{parsed.scheme}://{parsed.authority.host_and_port}" if parsed else ""


def robots_url(url: str) -> str:
    """Return the URL of the robots.txt for a URL: same scheme, host and port (RFC 9309 2.3).

    "" if no request can go to the URL. Never raises.

    >>> robots_url("http://example.com:8080/blog/?page=2")
    'http://example.com:8080/robots.txt'
    """
    parsed = _requestable(url)
    return f"{parsed.base}/robots.txt" if parsed else ""


def has_user_info(url: str) -> bool:
    """Return True if a URL holds a user name or a password.

    >>> has_user_info("https://me:secret@example.com/@me")
    True
    """
    return _USER_INFO.match(url) is not None


def strip_controls(text: str) -> str:
    """Return a URL, or a part of one, without the characters that browsers remove first.

    These are control characters and spaces at both ends, and tabs and line ends everywhere.
    """
    return text.strip(_STRIPPED).translate(_REMOVED)


def replace_backslashes(text: str) -> str:
    """Return an http or https URL, or a part of one, with slashes for backslashes.

    Browsers treat both alike before the query; in query and fragment nothing is replaced.
    """
    end = found.start() if (found := _AFTER_PATH.search(text)) else len(text)
    return text[:end].replace("\\", "/") + text[end:]


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


def _join(base: str, reference: str) -> str:
    """Return an absolute URL.

    `urljoin` reads some references as paths that browsers read as hosts (WHATWG URL 4.4): in them
    the base's scheme in front changes nothing, and two slashes or more are followed by a host.
    """
    scheme = f"{base.partition(':')[0]}:"
    rest = reference[len(scheme) :] if reference.lower().startswith(scheme) else reference
    return scheme + rest if rest.startswith("//") else urljoin(base, reference)


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    # It reads 10,000 rules, which only WALSH_PACE_BY = "domain" needs.
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415

    return PublicSuffixList(accept_unknown=False, only_icann=True)


def _requestable(url: str) -> _Url | None:
    parsed = _parse(url)
    return parsed if parsed and parsed.authority.netloc else None


def _parse(url: str) -> _Url | None:
    # Longer texts, such as ids of strangers' entries, are read as well, but not kept in memory.
    return _cached(url) if len(url) <= LONGEST_FOLLOWED else _read(url)


def _read(url: str) -> _Url | None:
    if plain := _PLAIN.fullmatch(url):
        scheme, host, tail = plain.groups()
        return _Url(scheme, _Authority(host, host, _DEFAULT_PORTS[scheme]), tail)
    text = strip_controls(url)
    start = _SCHEME.match(text)
    if start is None:
        return None
    scheme, rest = start[0][:-1].lower(), text[start.end() :]
    if scheme in _DEFAULT_PORTS:  # browsers accept any number of slashes here
        rest = replace_backslashes(rest).lstrip("/")
    elif rest.startswith("//"):
        rest = rest[2:]
    else:
        return None
    end = found.start() if (found := _AFTER_AUTHORITY.search(rest)) else len(rest)
    authority = _authority_of(scheme, rest[:end].rpartition("@")[2])
    return _Url(scheme, authority, _resolve(rest[end:])) if authority else None


_cached: Final = lru_cache(maxsize=1024)(_read)


def _without_end(path: str) -> str:
    """Return a path without its trailing slashes and spaces.

    `/a/.. /` ends in a dot segment once these are gone, which is resolved as well. The segments are
    taken from the end, one by one, so the time is linear.
    """
    kept = path[1:].split("/")
    while kept:
        last = kept[-1].rstrip(_STRIPPED)
        if _TWO_DOTS.fullmatch(last):
            del kept[-2:]
        elif not last or _ONE_DOT.fullmatch(last):
            del kept[-1]
        else:
            kept[-1] = last
            return "/" + "/".join(kept)
    return ""


def _resolve(tail: str) -> str:
    """Return path, query and fragment without the dot segments of the path."""
    end = found.start() if (found := _AFTER_PATH.search(tail)) else len(tail)
    path = tail[:end]
    if not tail.startswith("?", end):  # a space at the end is not sent, and hides no dot segment
        path = path.rstrip(_STRIPPED)
    if not _HAS_DOT_SEGMENT.search(path):
        return tail
    kept = list[str]()
    segments = path[1:].split("/")
    for segment in segments:
        if _TWO_DOTS.fullmatch(segment):
            del kept[-1:]
        elif not _ONE_DOT.fullmatch(segment):
            kept.append(segment)
    if _ONE_DOT.fullmatch(segments[-1]) or _TWO_DOTS.fullmatch(segments[-1]):
        kept.append("")  # the last dot segment leads to a folder
    return "/" + "/".join(kept) + tail[end:]


def _authority_of(scheme: str, text: str) -> _Authority | None:
    """Read host and port, without user info; None if there is no host. Never raises."""
    # Texts that are longer than any host name are read as well, but not cached.
    return _cached_authority(scheme, text) if len(text) < 300 else _read_authority(scheme, text)


def _read_authority(scheme: str, text: str) -> _Authority | None:
    name, port_text = _split_port(text)
    host = _ipv6(name) if name.startswith("[") else _ascii_host(name)
    if not host:
        return None
    default = _DEFAULT_PORTS.get(scheme)
    port = _port(port_text, default)
    is_valid = ":" in host or (host.isascii() and not _FORBIDDEN.search(host))
    if not (scheme and is_valid and len(host) <= _LONGEST_HOST and port != _BAD_PORT):
        return _Authority(host, "", None)
    netloc = _with_brackets(host) + ("" if port == default else f":{port}")
    return _Authority(host, netloc, port)


_cached_authority: Final = lru_cache(maxsize=4096)(_read_authority)


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
