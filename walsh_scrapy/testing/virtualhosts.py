"""What one address of a `DirectWeb` serves: the pages of the hosts that are there."""

from __future__ import annotations

from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import TYPE_CHECKING

from walsh_scrapy.testing.site import MISDIRECTED, Down

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ssl import SSLObject

    from walsh_scrapy.testing.directory import Directory
    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.reply import Page


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
