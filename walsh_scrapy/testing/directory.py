"""The sites of a web by name, and those at one address; hits on pages, and TLS contexts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import TYPE_CHECKING

from walsh_scrapy.testing.hit import DEFAULT_PORTS
from walsh_scrapy.testing.site import MISDIRECTED, NO_SUCH_HOST, NO_TUNNEL, Down, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ssl import SSLObject

    from walsh_scrapy.testing.authority import CertificateAuthority
    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.reply import Page
    from walsh_scrapy.testing.site import Down


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


class VirtualHosts:
    """Finds the page for a hit by its Host, and answers 421 for a host that is not there.

    `told` is called with the host of each request.
    """

    def __init__(
        self, hosts: Sequence[str], directory: Directory, told: Callable[[str], None]
    ) -> None:
        self._hosts = hosts
        self._directory = directory
        self._told = told

    @property
    def down(self) -> Down | None:
        """How the first host of the address fails, if it does."""
        return self._directory.down(self._hosts[0]) if self._hosts else None

    def page_for(self, hit: Hit) -> tuple[Hit, Page]:
        """Return the hit with its number on its page, and that page."""
        if hit.host not in self._hosts:
            return hit, MISDIRECTED
        self._told(hit.host)
        return self._directory.page_for(hit)

    def context_for(self, _: Hit) -> SSLContext | None:
        """Return None: nobody tunnels through an origin server."""
        return None

    @property
    def context(self) -> SSLContext:
        """The TLS context of the first host that has one; SNI may choose another.

        Where none has one, it has no certificate, so every handshake fails.
        """
        found = [each for host in self._hosts if (each := self._directory.context_of(host))]
        if not found:
            return SSLContext(PROTOCOL_TLS_SERVER)
        if len(found) > 1:
            found[0].sni_callback = self._by_name
        return found[0]

    def _by_name(self, connection: SSLObject, name: str | None, _: SSLContext) -> None:
        if name and name in self._hosts and (context := self._directory.context_of(name)):
            connection.context = context
