"""One host of the loopback web: its robots.txt, its pages, its certificate, what it asks for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Final, Literal

from walsh_scrapy.testing.names import RIGHT, Dns
from walsh_scrapy.testing.reply import Page, Reply

#: The last moment at which an EXPIRED certificate was valid.
EXPIRED_ON: Final = datetime(2025, 1, 1, tzinfo=UTC)
#: The host that a WRONG_NAME certificate is for.
OTHER_HOST: Final = "other.example"


class Certificate(Enum):
    """The certificate that an https site shows."""

    GOOD = "good"  #: for the site's host, valid, signed by the CA of the web
    EXPIRED = "expired"  #: like GOOD, but valid only until EXPIRED_ON
    WRONG_NAME = "wrong name"  #: for OTHER_HOST
    NAMELESS = "nameless"  #: for no host: it has no subjectAltName
    UNKNOWN_CA = "unknown CA"  #: signed by a CA that nobody trusts
    SELF_SIGNED = "self-signed"  #: signed by its own key
    INCOMPLETE = "incomplete"  #: signed by an intermediate CA, whose certificate is not sent


_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_RECORD: Final = re.compile(r"^\s*(user-agent|crawl-delay)\s*:\s*([^#\s]*)", re.IGNORECASE)


class Down(Enum):
    """How a host of a `DirectWeb` can fail before it answers a request, over http and https."""

    DEAD = "dead"  #: answers no SYN, to the end of the web: no connection is made or refused
    MUTE = "mute"  #: accepts connections and never sends a byte
    ALERT = "alert"  #: sends the TLS alert `handshake_failure` and closes the connection


@dataclass(frozen=True, slots=True)
class Site:
    """A host and what it serves. A port in `name` limits the site to that port.

    If `robots` is None, robots.txt is a 404. A page is looked up by path and query, then by path.
    """

    name: str
    robots: "Page | None" = None
    pages: Mapping[str, Page] = field(default_factory=dict)
    asks: str = ""  #: what this server asks for, in one line for `scrapy demo`
    crawl_delay: float | None = None  #: seconds, if `robots` is not a text for `*` only
    tls: Certificate | None = None  #: answers https URLs too, with this kind of certificate
    tls_version: Literal["1.2", "1.3"] | None = None  #: the only one that it speaks
    down: Down | None = None  #: ignored by `LoopbackWeb`, as `dns` is
    dns: Dns = RIGHT  #: what its name leads to; the last site of a host decides

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
        """Crawl-delay in seconds: as declared, or read from a text that has only the group `*`.

        Other texts give None, because a full parser would need tests of its own.
        """
        if self.crawl_delay is not None or not isinstance(self.robots, str):
            return self.crawl_delay
        lines = _LINE_END.split(self.robots)
        found = [m.groups() for line in lines if (m := _RECORD.match(line))]
        agents = {value for name, value in found if name.lower() == "user-agent"}
        delays = [float(value) for name, value in found if name.lower() == "crawl-delay"]
        return max(delays, default=None) if agents == {"*"} else None


NOT_FOUND: Final = Reply("There is no such page.\n", 404)
NO_SUCH_HOST: Final = Reply("No site of this name is in the loopback web.\n", 502)
MISDIRECTED: Final = Reply("This address is not that host's.\n", 421)
NO_TUNNEL: Final = Reply("This site has no certificate: http only.\n", 501)
