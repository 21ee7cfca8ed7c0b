"""URLs and the hosts in them, read as browsers read them (decisions 5 and 19).

Every gate asks here which host a URL means, so no spelling of a URL (case, user info, backslashes,
percent signs, soft hyphens, `0x7f.1`) leads past a blocklist entry or to a second pacing slot.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

import idna

from walsh_scrapy.policy.networks import format_ip, parse_ip, parse_ipv4

if TYPE_CHECKING:
    from tldextract import TLDExtract

#: Characters of a URL that a source may have: it is a key of the state, and PostgreSQL's are short.
LONGEST_DECLARED: Final = 2048
#: And of one that a visit is led to, as far as it is kept.
LONGEST_FOLLOWED: Final = 4096

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_TRIM: Final = "".join(map(chr, range(0x21)))  # C0 controls and the space, at either end
_INSIDE: Final = str.maketrans("", "", "\t\n\r")  # dropped wherever they stand
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|(?=//)", re.ASCII)
_AFTER_PATH: Final = re.compile(r"[?#]")
_AFTER_AUTHORITY: Final = re.compile(r"[/?#]")
_PORT: Final = re.compile(r":0*([0-9]{1,5})")
_BAD_PORT: Final = 65536
_LONGEST_HOST: Final = 253  # characters; no resolver knows a longer name (RFC 1035 2.3.4)
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\"#%/:<>?@\[\\\]^`{|}\x7f]")  # in no host, ever
_ASCII_LOWER: Final = str.maketrans({chr(65 + n): chr(97 + n) for n in range(26)})
# Most URLs are plain; this reads their host without taking them apart.
_PLAIN: Final = re.compile(
    r"https?://((?:[a-z0-9_-]+\.)*[a-z][a-z0-9_-]*)(?=(?::[0-9]*)?(?:[/?#]|\Z))", re.ASCII
)


class _Authority(NamedTuple):
    host: str
    netloc: str  # host, and the port unless it is the scheme's own; "" if nobody can ask there
    port: int | None  # as it is in effect; None for schemes without one


class _Url(NamedTuple):
    scheme: str  # lower-case; "" for `//host/path`
    authority: _Authority
    tail: str  # path, query and fragment


def host_of(url: str) -> str:
    """Return the host of a URL: lower-case, A-labels, no port, user or trailing dot (decision 5).

    IPv6 addresses come without brackets or zone, compressed; IPv4 in dotted decimals. "" if the
    URL names no host. Never raises.
    """
    if plain := _PLAIN.match(url):
        return plain[1]
    parsed = _parse(url)
    return parsed.authority.host if parsed else ""


def canonical_url(url: str) -> str:
    """Return the spelling under which a URL is the same as others (R7, decision 19).

    No fragment, no trailing slash at its end, scheme and host in lower case, A-labels, no default
    port, no user info (never sent, so it tells no pages apart, and it must not get into the
    record); the query as it is. The slash before a query stays: `/a/?q` and `/a?q` may differ.
    What is no URL with a host comes back stripped and otherwise unchanged. Never raises.
    """
    parsed = _parse(url)
    if parsed is None or not parsed.authority.netloc:
        return url.strip(_TRIM)
    base = f"{parsed.scheme}://{parsed.authority.netloc}"
    path, mark, query = parsed.tail.partition("#")[0].partition("?")
    if mark:
        return f"{base}{path or '/'}?{query}".rstrip(_TRIM)
    return base + path.rstrip("/" + _TRIM)


def wire_url(url: str) -> str:
    """Return the URL to ask for: canonical scheme and host, no fragment, the path untouched.

    Scrapy encodes host names by IDNA 2003 (`faß.de` would be asked at `fass.de`); a URL that went
    through here is ASCII in its host, and every gate judges the host that is really asked.
    """
    parsed = _parse(url)
    if parsed is None or not parsed.authority.netloc:
        return url.strip(_TRIM)
    tail = parsed.tail.partition("#")[0].rstrip(_TRIM)
    slash = "" if tail.startswith("/") else "/"
    return f"{parsed.scheme}://{parsed.authority.netloc}{slash}{tail}"


def origin_of(url: str) -> str:
    """Return `scheme://host:port` with the port in effect, the key of a robots.txt (decision 5).

    "" for what has no host that could be asked. Never raises.
    """
    parsed = _parse(url)
    if parsed is None or not parsed.authority.netloc:
        return ""
    host, _, port = parsed.authority
    return f"{parsed.scheme}://{_bracketed(host)}{'' if port is None else f':{port}'}"


def robots_url(url: str) -> str:
    """Return where the robots.txt of a URL is (RFC 9309 2.3): same scheme, host and port.

    User info, path, query and fragment stay behind. "" for what has no host that could be asked.
    Never raises.
    """
    parsed = _parse(url)
    if parsed is None or not parsed.authority.netloc:
        return ""
    return f"{parsed.scheme}://{parsed.authority.netloc}/robots.txt"


def trimmed(text: str) -> str:
    """Return a URL or a part of one without what browsers drop before they read it."""
    return text.strip(_TRIM).translate(_INSIDE)


def slashed(text: str) -> str:
    """Return http or https URLs or parts of them with slashes for the backslashes before a query.

    To browsers they are the same there.
    """
    mark = found.start() if (found := _AFTER_PATH.search(text)) else len(text)
    return text[:mark].replace("\\", "/") + text[mark:]


@lru_cache(maxsize=4096)
def registrable_domain(host: str) -> str:
    """Return the domain a host was registered under, for `WALSH_PACE_BY = "domain"` (decision 5).

    By the public suffix list bundled with tldextract, without its private part: all of github.io
    is one domain, which is the slower and so the politer reading. Nothing is fetched or written.
    Addresses, public suffixes and unknown names return the host itself.
    """
    if parse_ip(host) is not None:
        return host
    found = _suffixes().extract_str(host)
    return f"{found.domain}.{found.suffix}" if found.domain and found.suffix else host


@lru_cache(maxsize=1)
def _suffixes() -> TLDExtract:
    # It brings an HTTP client along, which takes as long to load as Scrapy's own: only who paces by
    # domain pays for that.
    from tldextract import TLDExtract  # noqa: PLC0415

    return TLDExtract(suffix_list_urls=(), cache_dir=None)


@lru_cache(maxsize=1024)
def _parse(url: str) -> _Url | None:
    text = trimmed(url)
    start = _SCHEME.match(text)
    if start is None:
        return None
    scheme, rest = start[0][:-1].lower(), text[start.end() :]
    if scheme in _PORTS:  # browsers read any number of slashes here
        rest = slashed(rest).lstrip("/")
    elif rest.startswith("//"):
        rest = rest[2:]
    else:
        return None
    end = found.start() if (found := _AFTER_AUTHORITY.search(rest)) else len(rest)
    name = rest[:end].rpartition("@")[2]
    # What is longer than any host name is read as well, but not remembered.
    read = _authority if len(name) < 300 else _authority.__wrapped__
    authority = read(scheme, name)
    return _Url(scheme, authority, rest[end:]) if authority else None


@lru_cache(maxsize=4096)
def _authority(scheme: str, text: str) -> _Authority | None:
    name, port_text = _cut_port(text)
    host = _ipv6(name) if name.startswith("[") else _ascii_host(name)
    if not host:
        return None
    default = _PORTS.get(scheme)
    port = _port(port_text, default)
    nameable = ":" in host or (host.isascii() and not _FORBIDDEN.search(host))
    if not (scheme and nameable and len(host) <= _LONGEST_HOST and port != _BAD_PORT):
        return _Authority(host, "", None)
    netloc = _bracketed(host) + ("" if port == default else f":{port}")
    return _Authority(host, netloc, port)


def _port(text: str, default: int | None) -> int | None:
    if text in {"", ":"}:
        return default
    digits = _PORT.fullmatch(text)
    return min(int(digits[1]), _BAD_PORT) if digits else _BAD_PORT


def _cut_port(text: str) -> tuple[str, str]:
    inside = text.find("]") if text.startswith("[") else 0
    if inside < 0:
        return "", ""
    colon = text.find(":", inside)
    return (text, "") if colon < 0 else (text[:colon], text[colon:])


def _bracketed(host: str) -> str:
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
    mapped = _mapped(decoded)
    if mapped is None or _FORBIDDEN.search(mapped):
        return text.translate(_ASCII_LOWER).rstrip(".")  # no resolver will know it: keep it as is
    name = mapped.rstrip(".")
    address = parse_ipv4(name)
    return format_ip(address) if address else name


def _mapped(host: str) -> str | None:
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
        # IDNA 2008 has no emoji; browsers ask for them all the same.
        return "xn--" + label[:64].encode("punycode").decode("ascii")
