"""The sites of a web: the answers of each page, with or without a fault, and the page of a URL."""

from __future__ import annotations

import gzip
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from walsh_scrapy.testing.hit import DEFAULT_PORTS, Headers, Hit

if TYPE_CHECKING:
    from ssl import SSLContext

    from walsh_scrapy.testing.authority import CertificateAuthority
    from walsh_scrapy.testing.hit import Hit

_FINAL: Final = re.compile(rb"(?:^|\r\n\r\n)HTTP/1\.[01] ([2-9][0-9]{2})")


class Fault(Enum):
    """The faults of a response on the wire."""

    RESET = "reset"  #: the connection is reset, without a response
    CLOSE = "close"  #: the connection is closed as the request has come, without a response
    TRUNCATE = "truncate"  #: Content-Length is that of the whole body, but only half of it is sent


@dataclass(frozen=True, slots=True)
class Reply:
    """One response.

    With an `etag` or a `last_modified` it becomes a 304 for a request that echoes it exactly.
    `If-Modified-Since` is ignored if `If-None-Match` was sent (RFC 9110 13.1.3).
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
        """Return the reply to this request: itself, a 304, or itself compressed."""
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
        given = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
        pairs = tuple(given)
        fields = (
            ("Content-Type", self.content_type),
            ("ETag", self.etag),
            ("Last-Modified", self.last_modified),
        )
        names = {name.lower() for name, _ in pairs}
        own = ((k, v) for k, v in fields if v is not None and k.lower() not in names)
        return (*own, *pairs)

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
    """A response byte by byte, beyond a `Reply`: the numbers are delays in seconds.

    The log has the status of the first final response in it, and no headers.
    """

    pieces: Sequence[bytes | float]
    then: Literal["close", "keep", "reset"] = "close"  #: the end of the connection

    @property
    def status(self) -> int:
        """The status of the first response that is not an interim one (1xx), or 0."""
        data = b"".join(piece for piece in self.pieces if isinstance(piece, bytes))
        found = _FINAL.search(data)
        return int(found[1]) if found else 0

    def steps(self) -> list[tuple[float, bytes]]:
        """Return the bytes, each with the seconds to wait before them."""
        steps, pause = list[tuple[float, bytes]](), 0.0
        for piece in self.pieces:
            if isinstance(piece, bytes):
                steps.append((pause, piece))
                pause = 0.0
            else:
                pause += piece
        return [*steps, (pause, b"")] if pause or not steps else steps


#: The answer of a path: a reply, its body, pages for successive hits (the last one repeats), or a
#: function from the hit to a page. The function runs in the server's thread and must not block.
Page: TypeAlias = "Reply | Raw | str | bytes | Sequence[Page] | Callable[[Hit], Page]"


def redirect(location: str, status: int = 301) -> Reply:
    """Return a redirect to `location`, which is sent unchanged."""
    return Reply(status=status, headers={"Location": location}, content_type=None)


def reply_of(page: Page, hit: Hit) -> Reply | Raw:
    """Return the reply of the page to this hit; `hit.number` selects one of a sequence."""
    while not isinstance(page, Reply | Raw):
        if isinstance(page, str | bytes):
            page = Reply(page)
        elif callable(page):
            page = page(hit)
        else:
            page = page[min(hit.number, len(page)) - 1]
    return page.to(hit) if isinstance(page, Reply) else page


#: The last moment at which an EXPIRED certificate was valid.
EXPIRED_ON: Final = datetime(2025, 1, 1, tzinfo=UTC)
#: The host that a WRONG_NAME certificate is for.
OTHER_HOST: Final = "other.example"


class Certificate(Enum):
    """The certificate that an https site shows."""

    GOOD = "good"  #: for the site's host, valid, signed by the CA of the web
    EXPIRED = "expired"  #: like GOOD, but valid only until EXPIRED_ON
    WRONG_NAME = "wrong name"  #: for OTHER_HOST
    NAMELESS = "nameless"  #: for no host: its subjectAltName is empty
    UNKNOWN_CA = "unknown CA"  #: signed by a CA that nobody trusts
    SELF_SIGNED = "self-signed"  #: signed with the key itself, without a subjectAltName
    INCOMPLETE = "incomplete"  #: signed by an intermediate CA, whose certificate is not sent


#: Instead of an address: that of the site, of which every site has one.
OWN: Final = "own"
#: In the place of an address: one that answers no SYN, so a connection is never made or refused.
DEAD: Final = "dead"
#: In the place of an address: one that refuses connections.
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one lookup: addresses in this order, or an error.

    Addresses may be IPv4 or IPv6, anywhere. Only those in 127.0.0.0/8 and `::1` lead to the web,
    those spelled `::ffff:127.0.0.1` too.
    """

    addresses: Sequence[str] = (OWN,)
    error: int = 0  #: a code of `getaddrinfo`, `socket.EAI_AGAIN` for example, instead
    delay: float = 0.0  #: seconds for which the lookup blocks


#: The site's address.
RIGHT: Final = Answer()
#: The name does not exist.
UNKNOWN: Final = Answer((), socket.EAI_NONAME)
#: There is no resolver at all: the lookup fails at once.
NO_RESOLVER: Final = Answer((), socket.EAI_AGAIN)

#: One answer to every lookup, or answers to successive lookups, of which the last one repeats.
Dns: TypeAlias = Answer | Sequence[Answer]


def silent(seconds: float = 10.0) -> Answer:
    """Return the answer of glibc for silent name servers: a long wait, then EAI_AGAIN."""
    return Answer((), socket.EAI_AGAIN, seconds)


def answers_of(dns: Dns) -> Sequence[Answer]:
    """Return the answers to successive lookups."""
    return [dns] if isinstance(dns, Answer) else dns


_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_RECORD: Final = re.compile(r"^\s*(user-agent|crawl-delay)\s*:\s*([^#\s]*)", re.IGNORECASE)


class Down(Enum):
    """The failures of a host of a `DirectWeb` before it answers a request, over http and https."""

    DEAD = "dead"  #: answers no SYN, to the end of the web: no connection is made or refused
    MUTE = "mute"  #: accepts connections and never sends a byte
    ALERT = "alert"  #: sends the TLS alert `handshake_failure` and closes the connection


@dataclass(frozen=True, slots=True)
class Site:
    """A host and its pages. A port in `name` limits the site to that port.

    If `robots` is None, robots.txt is a 404. A page is looked up by path and query, then by path.
    """

    name: str
    robots: Page | None = None
    pages: Mapping[str, Page] = field(default_factory=dict)
    description: str = ""  #: what this server does, in one line for `walsh demo`
    tls: Certificate | None = None  #: answers https URLs too, with this kind of certificate
    tls_version: Literal["1.2", "1.3"] | None = None  #: the only one that it speaks
    down: Down | None = None  #: ignored by `LoopbackWeb`, as `dns` is
    dns: Dns = RIGHT  #: the addresses of its name; the last site of a host decides

    @property
    def key(self) -> str:
        """The name in lower case, without a trailing dot: the key of the site."""
        host, colon, port = self.name.lower().partition(":")
        return host.rstrip(".") + colon + port

    @property
    def host(self) -> str:
        """The name without its port: the host that pacing counts by."""
        return self.key.partition(":")[0]

    def page(self, path: str) -> tuple[str, Page]:
        """Return the page for a path with query, and the key under which its hits are counted."""
        for key in (path, path.partition("?")[0]):
            if key in self.pages:
                return key, self.pages[key]
        if path == "/robots.txt" and self.robots is not None:
            return path, self.robots
        return path, NOT_FOUND

    @property
    def asked_delay(self) -> float | None:
        """Crawl-delay in seconds, read from a text that has only the group `*`.

        Others give None, because a full parser would need more tests.
        """
        if not isinstance(self.robots, str):
            return None
        lines = _LINE_END.split(self.robots)
        found = [m.groups() for line in lines if (m := _RECORD.match(line))]
        agents = {value for name, value in found if name.lower() == "user-agent"}
        delays = [float(value) for name, value in found if name.lower() == "crawl-delay"]
        return max(delays, default=None) if agents == {"*"} else None


NOT_FOUND: Final = Reply("There is no such page.\n", 404)
NO_SUCH_HOST: Final = Reply("No site of this name is in the loopback web.\n", 502)
MISDIRECTED: Final = Reply("This address is not that host's.\n", 421)
NO_TUNNEL: Final = Reply("This site has no certificate: http only.\n", 501)


class Directory:
    """Finds the page for a hit. One thread may add sites while another looks them up."""

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
        """Return the TLS context for the host of a CONNECT request, None if its site has no TLS."""
        return self._context(hit.host, self.find(hit.host, hit.port))

    def context_of(self, host: str) -> SSLContext | None:
        """Return the TLS context of a host at any port, None if none of its sites has TLS."""
        site = self.find(host, DEFAULT_PORTS["https"])
        if site is None or site.tls is None:
            others = (each for each in self._sites.values() if each.host == host and each.tls)
            site = next(others, None)
        return self._context(host, site)

    def down(self, host: str) -> Down | None:
        """Return how a host fails, None if it does not."""
        site = self.find(host, DEFAULT_PORTS["http"])
        return site.down if site else None

    def close(self) -> None:
        """Remove the certificates."""
        if self._authority:
            self._authority.close()
            self._authority = None

    def find(self, host: str, port: int) -> Site | None:
        """Return the site of a host at a port."""
        return self._sites.get(f"{host}:{port}") or self._sites.get(host)

    def _context(self, host: str, site: Site | None) -> SSLContext | None:
        if site is None or site.tls is None or self._authority is None:
            return None
        return self._authority.context(host, site.tls, site.tls_version)
