"""A web on one loopback port: an HTTP/1.1 server that acts as a forward proxy for its sites.

    with LoopbackWeb(Site("blog.example", pages={"/feed.xml": "<rss/>"})) as web:
        ...  # run a crawler with web.environment, then look at web.log

It listens on 127.0.0.1 only. For an `https://` URL a client sends CONNECT, which is logged. If the
site has `tls`, the web opens the tunnel and serves the site inside it; otherwise it refuses the
tunnel.
"""

import asyncio
import errno
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Self

from walsh_scrapy.testing.hit import (
    ConnectionLog,
    ConnectionRecord,
    CountedSocket,
    Hit,
    SharedLog,
    most_open,
)
from walsh_scrapy.testing.serverhttp1 import Connection, streams
from walsh_scrapy.testing.site import Certificate, Directory, Fault, Page, Reply, Site, redirect

_START_SECONDS: Final = 60.0
#: asyncio needs so many iterations of its loop to close the socket of an aborted transport.
_STEPS_TO_CLOSE: Final = 4
_BACKLOG: Final = 1024
_TOO_MANY_OPEN: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ROOM_AGAIN_SECONDS: Final = 0.1


class Web(ABC):
    """Any number of sites, served in a thread from `start` to `close`."""

    def __init__(self, *sites: Site) -> None:
        self._directory = Directory()
        self._log = SharedLog[Hit]()
        self._connections = ConnectionLog()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._listeners: list[socket.socket] = []
        self._open: dict[asyncio.Task[None], CountedSocket] = {}
        self._errors: list[Exception] = []
        self.add(*sites)

    def add(self, *sites: Site) -> None:
        """Add sites, also while the web is running; a site replaces one of the same name."""
        self._directory.add(*sites)

    @property
    def sites(self) -> list[Site]:
        """All sites, in the order in which they were added."""
        return self._directory.sites

    @property
    def log(self) -> list[Hit]:
        """All requests so far, in the order of their start; some may be unfinished."""
        return self._log.entries()

    @property
    def connections(self) -> list[ConnectionRecord]:
        """All TCP connections so far, in the order in which they were opened."""
        return self._connections.records()

    @property
    def most_open_connections(self) -> int:
        """The maximum number of connections that were open at one moment, over all sites."""
        return most_open(self.connections)

    @property
    def crawl_delays(self) -> dict[str, float]:
        """The Crawl-delay in seconds of each host, where `Site.asked_delay` is not None."""
        delays: dict[str, float] = {}
        for site in self.sites:
            if site.asked_delay is not None:
                delays[site.host] = max(site.asked_delay, delays.get(site.host, 0.0))
        return delays

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Environment variables that make a process request its URLs from this web."""

    def clear(self) -> None:
        """Remove all hits and closed connections from the logs. Pages go on counting their hits."""
        self._log.clear()
        self._connections.clear()

    def wait_for(self, predicate: Callable[[Sequence[Hit]], bool], timeout: float = 300.0) -> bool:
        """Block until the predicate is true for the log; return False after `timeout` seconds."""
        return self._log.wait_for(predicate, timeout)

    def wait_for_connections(
        self, predicate: Callable[[Sequence[ConnectionRecord]], bool], timeout: float = 300.0
    ) -> bool:
        """Like `wait_for`, for the log of connections."""
        return self._connections.wait_for(predicate, timeout)

    def start(self) -> Self:
        """Start to serve. Raises RuntimeError if it cannot listen within a minute."""
        self._thread = threading.Thread(target=self._run, name="loopback-web", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_SECONDS) or self._stop is None:
            raise RuntimeError("the loopback web could not listen on 127.0.0.1")
        return self

    def close(self) -> None:
        """Cut all connections and stop the thread. Raises the exception of a page that failed."""
        if self._loop and self._stop and self._thread and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._connections.close()
        self._directory.close()
        if self._errors:
            raise self._errors.pop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    async def _open_listeners(self) -> None:
        """Open the sockets, and pass each of them to `_listen`."""

    @abstractmethod
    async def _serve(self, accepted: CountedSocket, scheme: str) -> None:
        """Answer the requests of one connection."""

    @abstractmethod
    def _host_at(self, accepted: socket.socket) -> str | None:
        """Return the host of a connection; "" if it is not known yet, None to refuse it."""

    def _run(self) -> None:
        try:
            asyncio.run(self._serve_until_closed())
        finally:
            self._ready.set()

    async def _serve_until_closed(self) -> None:
        self._loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        try:
            await self._open_listeners()
            if self._connections.descriptor is not None:
                self._loop.add_reader(self._connections.descriptor, self._connections.sweep)
            self._stop = stop
            self._ready.set()
            await stop.wait()
        finally:
            await self._stop_serving()

    async def _stop_serving(self) -> None:
        loop = asyncio.get_running_loop()
        if self._connections.descriptor is not None:
            loop.remove_reader(self._connections.descriptor)
        self._close_listeners()
        tasks = list(self._open)
        sockets = list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(_STEPS_TO_CLOSE):
            await asyncio.sleep(0)
        # A task that was cancelled before its first step has not closed its socket.
        for accepted in sockets:
            accepted.close()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener.fileno())
            listener.close()

    def _listen(self, listener: socket.socket, scheme: str) -> None:
        """Listen on a bound socket, and accept its connections from now on."""
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._listeners.append(listener)
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener, scheme)

    def _accept(self, listener: socket.socket, scheme: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            accepted, peer = listener.accept()
        except OSError as error:
            if error.errno in _TOO_MANY_OPEN:
                loop.remove_reader(listener.fileno())
                loop.call_later(_ROOM_AGAIN_SECONDS, self._accept_again, listener, scheme)
            return
        host = self._host_at(accepted)
        if host is None:
            accepted.close()
            return
        counted = self._connections.open(accepted, peer[1], host, scheme)
        counted.setblocking(False)
        task = loop.create_task(self._answer(counted, scheme))
        self._open[task] = counted
        task.add_done_callback(self._open.pop)

    def _accept_again(self, listener: socket.socket, scheme: str) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener, scheme)

    async def _answer(self, accepted: CountedSocket, scheme: str) -> None:
        try:
            await self._serve(accepted, scheme)
        except Exception as error:  # noqa: BLE001 - of a page of the test: close() raises it
            self._errors.append(error)
            accepted.close()


__all__ = ["Certificate", "Fault", "LoopbackWeb", "Page", "Reply", "Site", "redirect"]


#: Scrapy's middleware for cookies downloads the public suffix list once, past all middlewares.
NO_SUFFIX_LIST: Final = {"TLDEXTRACT_PUBLIC_SUFFIX_LIST_URLS": ""}


class LoopbackWeb(Web):
    """Any number of sites behind one proxy, served in a thread from `start` to `close`.

    The `host` of its `connections` is empty, because all of them go to the proxy.
    """

    port: int = 0  #: the port on 127.0.0.1, which the system chooses in `start`

    @property
    def url(self) -> str:
        """The URL of the web as a proxy."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that send every request through this web, https too.

        If a site has `tls`, OpenSSL will trust the CA of this web, and no other CA.
        """
        proxies = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY")
        variables = dict.fromkeys(proxies, self.url) | {"no_proxy": "", "NO_PROXY": ""}
        return variables | NO_SUFFIX_LIST | self._directory.environment

    async def _open_listeners(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._listen(listener, "http")

    def _host_at(self, _: socket.socket) -> str:
        return ""

    async def _serve(self, accepted: CountedSocket, _: str) -> None:
        def record_handshake(handshake: str) -> None:
            self._connections.change(accepted, handshake=handshake)

        async with streams(accepted) as (reader, writer):
            connection = Connection(
                reader,
                writer,
                self._directory.page_for,
                self._log,
                client=accepted.client,
                context_for=self._directory.context_for,
                on_handshake=record_handshake,
            )
            await connection.serve()
