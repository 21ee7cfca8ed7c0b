"""A web on one loopback port: an HTTP/1.1 server that is a forward proxy for all of its sites.

    with LoopbackWeb(Site("blog.example", pages={"/feed.xml": "<rss/>"})) as web:
        ...  # run a crawler with web.environment, then look at web.log

It listens on 127.0.0.1 only. A client asks for an `https://` URL by CONNECT, which is logged. If
the site has `tls`, the web opens the tunnel and answers inside it with the certificate of the site.
Otherwise it refuses the tunnel.
"""

import socket

from walsh_scrapy.testing.certificates import Certificate
from walsh_scrapy.testing.connection import Connection
from walsh_scrapy.testing.connections import CountedSocket
from walsh_scrapy.testing.hit import Hit, load_log, save_log
from walsh_scrapy.testing.reply import Fault, Page, Reply, redirect
from walsh_scrapy.testing.served import Web
from walsh_scrapy.testing.site import Site
from walsh_scrapy.testing.streams import streams

__all__ = [
    "Certificate",
    "Fault",
    "Hit",
    "LoopbackWeb",
    "Page",
    "Reply",
    "Site",
    "load_log",
    "redirect",
    "save_log",
]


class LoopbackWeb(Web):
    """Any number of sites on one port, served in a thread from `start` to `close`.

    `connections` are those to the proxy: their `host` is empty.
    """

    port: int = 0  #: of 127.0.0.1; the system chooses it in `start`

    @property
    def url(self) -> str:
        """The URL of the web as a proxy."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that send every request through this web, https too.

        If a site has `tls`, they also make OpenSSL trust the CA of this web and no other CA.
        """
        proxies = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY")
        everything = dict.fromkeys(proxies, self.url) | {"no_proxy": "", "NO_PROXY": ""}
        return everything | self._directory.environment

    async def _open_listeners(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._listen(listener, "http")

    def _host_at(self, _: socket.socket) -> str:
        return ""

    async def _serve(self, accepted: CountedSocket, _: str) -> None:
        def shaken(handshake: str) -> None:
            self._connections.change(accepted, handshake=handshake)

        async with streams(accepted) as (reader, writer):
            connection = Connection(
                reader, writer, self._directory, self._log, client=accepted.client, shaken=shaken
            )
            await connection.serve()
