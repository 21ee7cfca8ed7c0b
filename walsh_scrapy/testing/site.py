"""Describes the sites of a test web: their pages, faults, certificates and DNS answers."""

from __future__ import annotations

import gzip
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from walsh_scrapy.testing.certificate import Certificate
from walsh_scrapy.testing.hit import DEFAULT_PORTS, Headers, Hit

if TYPE_CHECKING:
    from ssl import SSLContext

    from walsh_scrapy.testing.authority import CertificateAuthority
    from walsh_scrapy.testing.hit import Hit

__all__ = ["Answer", "Certificate", "Down", "Fault", "Raw", "Reply", "Site", "redirect", "silent"]

_FINAL: Final = re.compile(rb"(?:^|\r\n\r\n)HTTP/1\.[01] ([2-9][0-9]{2})")


class Fault(Enum):
    """What goes wrong while a response is sent."""

    RESET = "reset"  #: the connection is reset, without a response
    CLOSE = "close"  #: the connection is closed after the request, without a response
    TRUNCATE = "truncate"  #: only half of the body is sent; Content-Length announces all of it


@dataclass(frozen=True, slots=True)
class Reply:
    """One response.

    With an `etag` or a `last_modified` the response is a 304 if the request echoes that validator
    exactly. `If-Modified-Since` is ignored if `If-None-Match` was sent (RFC 9110 13.1.3).
    """

    body: bytes | str = b""
    status: int = 200
    content_type: str | None = "text/plain; charset=utf-8"
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = field(default_factory=tuple)
    etag: str | None = None
    last_modified: str | None = None
    delay: float = 0.0  #: seconds before the first byte
    drip: float = 0.0  #: seconds over which the body is sent
    gzip: bool = False  #: compress the body if the request accepts it
    fault: Fault | None = None

    def to(self, hit: Hit) -> Reply:
        """Return the reply to this request: this one, a 304, or this one compressed."""
        if self._fresh_for(hit):
            return replace(self, status=304, body=b"", content_type=None)
        if self.gzip and "gzip" in (hit.header("Accept-Encoding") or ""):
            return self._compressed()
        return self

    def content(self) -> bytes:
        """Return the body as bytes, text in UTF-8."""
        return self.body.encode() if isinstance(self.body, str) else self.body

    def header_pairs(self) -> Headers:
        """Return all headers but Date and Content-Length; `headers` override the other fields."""
        items = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
        pairs = tuple(items)
        fields = (
            ("Content-Type", self.content_type),
            ("ETag", self.etag),
            ("Last-Modified", self.last_modified),
        )
        names = {name.lower() for name, _ in pairs}
        defaults = ((k, v) for k, v in fields if v is not None and k.lower() not in names)
        return (*defaults, *pairs)

    def _fresh_for(self, hit: Hit) -> bool:
        etag = hit.header("If-None-Match")
        if etag is not None:
            return etag == self.etag
        since = hit.header("If-Modified-Since")
        return since is not None and since == self.last_modified

    def _compressed(self) -> Reply:
        extra = (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
        packed = gzip.compress(self.content(), mtime=0)
        return replace(self, body=packed, headers=(*self.header_pairs(), *extra), gzip=False)


@dataclass(frozen=True, slots=True)
class Raw:
    """A response given as bytes, for what a `Reply` cannot express; numbers are delays in seconds.

    The log shows the status of the first final response in the bytes, and no headers.
    """

    pieces: Sequence[bytes | float]
    then: Literal["close", "keep", "reset"] = "close"  #: what happens to the connection afterwards

    @property
    def status(self) -> int:
        """The status of the first response that is not an interim one (1xx), or 0."""
        data = b"".join(piece for piece in self.pieces if isinstance(piece, bytes))
        match = _FINAL.search(data)
        return int(match[1]) if match else 0

    def steps(self) -> list[tuple[float, bytes]]:
        """Return the pieces of bytes, each with the seconds to wait before it is sent."""
        steps: list[tuple[float, bytes]] = []
        pause = 0.0
        for piece in self.pieces:
            if isinstance(piece, bytes):
                steps.append((pause, piece))
                pause = 0.0
            else:
                pause += piece
        return [*steps, (pause, b"")] if pause or not steps else steps


#: What a path answers: a reply, just its body, a sequence of pages for successive hits (the last
#: page repeats), or a function from the hit to a page. The function runs in the server's thread and
#: must not block.
Page: TypeAlias = "Reply | Raw | str | bytes | Sequence[Page] | Callable[[Hit], Page]"


def redirect(location: str, status: int = 301) -> Reply:
    """Return a redirect; `location` is sent unchanged, so it may be relative or malformed."""
    return Reply(status=status, headers={"Location": location}, content_type=None)


def reply_of(page: Page, hit: Hit) -> Reply | Raw:
    """Return the page's reply to this hit; `hit.number` selects a page of a sequence."""
    while not isinstance(page, Reply | Raw):
        if isinstance(page, str | bytes):
            page = Reply(page)
        elif callable(page):
            page = page(hit)
        else:
            page = page[min(hit.number, len(page)) - 1]
    return page.to(hit) if isinstance(page, Reply) else page


#: Stands for the site's address, which a `DirectWeb` chooses.
OWN: Final = "own"
#: Stands for an address that answers no SYN: a connection is neither made nor refused.
DEAD: Final = "dead"
#: Stands for an address that refuses connections.
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one DNS lookup: addresses in this order, or an error.

    Any IPv4 or IPv6 address is allowed. Only addresses in 127.0.0.0/8 (also as
    `::ffff:127.0.0.1`) and `::1` lead to the web.
    """

    addresses: Sequence[str] = (OWN,)
    error: int = 0  #: an error code of `getaddrinfo` instead, for example `socket.EAI_AGAIN`
    delay: float = 0.0  #: seconds until the answer comes


#: The lookup returns the site's address.
RIGHT: Final = Answer()
#: The name does not exist.
UNKNOWN: Final = Answer((), socket.EAI_NONAME)
#: There is no resolver at all: the lookup fails at once.
NO_RESOLVER: Final = Answer((), socket.EAI_AGAIN)

#: One answer to every lookup, or answers to successive lookups; the last answer repeats.
Dns: TypeAlias = Answer | Sequence[Answer]


def silent(seconds: float = 10.0) -> Answer:
    """Return what glibc answers if no name server responds: EAI_AGAIN after some seconds."""
    return Answer((), socket.EAI_AGAIN, seconds)


def answers_of(dns: Dns) -> Sequence[Answer]:
    """Return the answers to successive lookups."""
    return [dns] if isinstance(dns, Answer) else dns


_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_RECORD: Final = re.compile(r"^\s*(user-agent|crawl-delay)\s*:\s*([^#\s]*)", re.IGNORECASE)


class Down(Enum):
    """How a host of a `DirectWeb` fails before it can answer a request, over http and https."""

    DEAD = "dead"  #: answers no SYN until the web ends: a connection is neither made nor refused
    MUTE = "mute"  #: accepts connections and never sends a byte
    ALERT = "alert"  #: sends the TLS alert `handshake_failure` and closes the connection


@dataclass(frozen=True, slots=True)
class Site:
    """A host and its pages. With a port in `name`, the site answers at that port only.

    If `robots` is None, robots.txt is a 404. A page is looked up by path and query, then by path
    alone.
    """

    name: str
    robots: Page | None = None
    pages: Mapping[str, Page] = field(default_factory=dict)
    description: str = ""  #: what this server does, in one line for `walsh demo`
    tls: Certificate | None = None  #: serve https URLs too, with this kind of certificate
    tls_version: Literal["1.2", "1.3"] | None = None  #: the only TLS version; None for both
    down: Down | None = None  #: how the host fails; `LoopbackWeb` ignores it
    dns: Dns = RIGHT  #: the answers for the host's name; `LoopbackWeb` ignores them

    @property
    def key(self) -> str:
        """The name in lower case, without a trailing dot, with its port if it has one."""
        host, colon, port = self.name.lower().partition(":")
        return host.rstrip(".") + colon + port

    @property
    def host(self) -> str:
        """The name without its port, as `Hit.host` spells it."""
        return self.key.partition(":")[0]

    def page(self, path: str) -> tuple[str, Page]:
        """Return the page for a path with query, and the path that its hits are counted by."""
        for key in (path, path.partition("?")[0]):
            if key in self.pages:
                return key, self.pages[key]
        if path == "/robots.txt" and self.robots is not None:
            return path, self.robots
        return path, NOT_FOUND

    @property
    def asked_delay(self) -> float | None:
        """The Crawl-delay in seconds, if `robots` is a text whose only group is `*`, else None.

        This is no full parser on purpose: a check should be simpler than what it checks.
        """
        if not isinstance(self.robots, str):
            return None
        lines = _LINE_END.split(self.robots)
        records = [match.groups() for line in lines if (match := _RECORD.match(line))]
        agents = {value for name, value in records if name.lower() == "user-agent"}
        delays = [float(value) for name, value in records if name.lower() == "crawl-delay"]
        return max(delays, default=None) if agents == {"*"} else None


NOT_FOUND: Final = Reply("There is no such page.\n", 404)
NO_SUCH_HOST: Final = Reply("No site of this name is in the loopback web.\n", 502)
MISDIRECTED: Final = Reply("This address is not that host's.\n", 421)
NO_TUNNEL: Final = Reply("This site has no certificate: http only.\n", 501)


class Directory:
    """Finds the page for a hit. One thread may add sites while another one looks them up."""

    def __init__(self) -> None:
        self._sites: dict[str, Site] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._authority: CertificateAuthority | None = None

    @property
    def sites(self) -> list[Site]:
        """Every site, in the order in which they were added."""
        return list(self._sites.values())

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make OpenSSL trust the CA; empty if no site has TLS."""
        return {"SSL_CERT_FILE": str(self._authority.file)} if self._authority else {}

    def add(self, *sites: Site) -> None:
        """Add sites; one with the name of an earlier one replaces it."""
        if self._authority is None and any(site.tls for site in sites):
            from walsh_scrapy.testing.authority import CertificateAuthority  # noqa: PLC0415 - rarely needed

            self._authority = CertificateAuthority()
        self._sites = self._sites | {site.key: site for site in sites}

    def page_for(self, hit: Hit) -> tuple[Hit, Page]:
        """Return the hit with its number on its page, and that page."""
        if hit.method == "CONNECT":
            return hit, NO_TUNNEL
        site = self.find(hit.host, hit.port)
        if site is None:
            return hit, NO_SUCH_HOST
        path, page = site.page(hit.path)
        self._counts[site.key, path] += 1
        return replace(hit, number=self._counts[site.key, path]), page

    def context_for(self, hit: Hit) -> SSLContext | None:
        """Return the TLS context for the host of a CONNECT; None if its site has no TLS."""
        return self._context(hit.host, self.find(hit.host, hit.port))

    def context_of(self, host: str) -> SSLContext | None:
        """Return the TLS context of a host at any port; None if no site of it has TLS."""
        site = self.find(host, DEFAULT_PORTS["https"])
        if site is None or site.tls is None:
            secure_sites = (site for site in self._sites.values() if site.host == host and site.tls)
            site = next(secure_sites, None)
        return self._context(host, site)

    def down(self, host: str) -> Down | None:
        """Return how a host fails; None if it works."""
        site = self.find(host, DEFAULT_PORTS["http"])
        return site.down if site else None

    def close(self) -> None:
        """Remove the certificates."""
        if self._authority:
            self._authority.close()
            self._authority = None

    def find(self, host: str, port: int) -> Site | None:
        """Return the site of a host at a port; None if there is no such site."""
        return self._sites.get(f"{host}:{port}") or self._sites.get(host)

    def _context(self, host: str, site: Site | None) -> SSLContext | None:
        if site is None or site.tls is None or self._authority is None:
            return None
        return self._authority.context(host, site.tls, site.tls_version)
