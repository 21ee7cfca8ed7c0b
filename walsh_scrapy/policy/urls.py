"""URLs, read as browsers read them (WHATWG URL; decisions 5, 19 and 32).

Every gate gets the host of a URL from here. So no spelling of a URL (case, user info, backslashes,
percent signs, soft hyphens, `0x7f.1`) can evade a blocklist entry or get a second slot of a host.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urljoin

from walsh_scrapy.policy.hosts import (
    DEFAULT_PORTS,
    LONGEST_HOST,
    Authority,
    authority_of,
    parse_ip,
)

if TYPE_CHECKING:
    from tldextract import TLDExtract

#: Characters that the URL of a source may have: it is a key of the state, and those of PostgreSQL
#: are limited.
LONGEST_DECLARED: Final = 2048
#: Characters that the target of a redirect or a link may have.
LONGEST_FOLLOWED: Final = 4096
#: How many of the URLs that a page announces are tried, until one answers as markdown.
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
    rf"(https?)://(?=[^/]{{1,{LONGEST_HOST}}}/){_NAME}"
    rf"((?:/(?:[{_SAFE}][{_SAFE}.]*)?)+(?:\?[{_SAFE}./]+)?)",
    re.ASCII,
)


class _Url(NamedTuple):
    scheme: str  # in lower case; "" for `//host/path`
    authority: Authority
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
    """Return the form of a URL under which its entry is known (R7, decision 19).

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

    The path stays as it is, but for its dot segments (decision 32). Scrapy encodes host names by
    IDNA 2003 and would request `faß.de` from `fass.de`. The host of this URL is ASCII, so the gates
    judge the host that is requested. Never raises.

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

    A percent-encoded dot counts as a dot. So the path that the gates judge is the one that servers
    find the page by. Query and fragment stay as they are, and so does a URL that has no dot
    segments or no host. Never raises.

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

    Decision 5. It follows the public suffix list bundled with tldextract, without its private part:
    all of github.io is one domain, which is the slower choice. Nothing is fetched or written.
    Addresses, public suffixes and unknown names are returned as they are.

    >>> registrable_domain("blog.example.co.uk")
    'example.co.uk'
    """
    if parse_ip(host) is not None:
        return host
    found = _suffixes().extract_str(host)
    return f"{found.domain}.{found.suffix}" if found.domain and found.suffix else host


def _join(base: str, reference: str) -> str:
    """Return an absolute URL.

    `urljoin` reads some references as paths that browsers read as hosts (WHATWG URL 4.4): in them
    the base's own scheme in front changes nothing, and two slashes or more are followed by a host.
    """
    scheme = f"{base.partition(':')[0]}:"
    rest = reference[len(scheme) :] if reference.lower().startswith(scheme) else reference
    return scheme + rest if rest.startswith("//") else urljoin(base, reference)


@lru_cache(maxsize=1)
def _suffixes() -> TLDExtract:
    # It imports an HTTP client, which takes as long as importing Scrapy's: only WALSH_PACE_BY =
    # "domain" needs it.
    from tldextract import TLDExtract  # noqa: PLC0415

    return TLDExtract(suffix_list_urls=(), cache_dir=None)


def _requestable(url: str) -> _Url | None:
    parsed = _parse(url)
    return parsed if parsed and parsed.authority.netloc else None


def _parse(url: str) -> _Url | None:
    # Longer texts, such as ids of strangers' entries, are read as well, but not kept in memory.
    return _cached(url) if len(url) <= LONGEST_FOLLOWED else _read(url)


def _read(url: str) -> _Url | None:
    if plain := _PLAIN.fullmatch(url):
        scheme, host, tail = plain.groups()
        return _Url(scheme, Authority(host, host, DEFAULT_PORTS[scheme]), tail)
    text = strip_controls(url)
    start = _SCHEME.match(text)
    if start is None:
        return None
    scheme, rest = start[0][:-1].lower(), text[start.end() :]
    if scheme in DEFAULT_PORTS:  # browsers accept any number of slashes here
        rest = replace_backslashes(rest).lstrip("/")
    elif rest.startswith("//"):
        rest = rest[2:]
    else:
        return None
    end = found.start() if (found := _AFTER_AUTHORITY.search(rest)) else len(rest)
    authority = authority_of(scheme, rest[:end].rpartition("@")[2])
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
        kept.append("")  # what the last dot segment leads to is a folder
    return "/" + "/".join(kept) + tail[end:]
