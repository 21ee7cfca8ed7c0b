"""A web on one loopback port: an HTTP/1.1 server that is a forward proxy for all of its sites.

    with LoopbackWeb(Site("blog.example", pages={"/feed.xml": "<rss/>"})) as web:
        ...  # run a crawler with web.environment, then look at web.log

It listens on 127.0.0.1 only. A client asks for an `https://` URL by CONNECT, which is logged. If
the site has `tls`, the web opens the tunnel and answers inside it with the certificate of the site.
Otherwise it refuses the tunnel.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from walsh_scrapy.testing.certificates import Certificate
from walsh_scrapy.testing.connection import Connection
from walsh_scrapy.testing.directory import Directory
from walsh_scrapy.testing.hit import Hit, Log, load_log, save_log
from walsh_scrapy.testing.reply import Fault, Page, Reply, redirect
from walsh_scrapy.testing.site import Site

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

_START_SECONDS = 60.0


class LoopbackWeb:
    """Any number of sites on one port, served in a thread from `start` to `close`."""

    def __init__(self, *sites: Site) -> None:
        self._directory = Directory()
        self._log = Log()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._errors: list[Exception] = []
        self.port = 0  #: of 127.0.0.1; the system chooses it in `start`
        self.add(*sites)

    def add(self, *sites: Site) -> None:
        """Add sites, also while the web serves; one with the name of an earlier one replaces it."""
        self._directory.add(*sites)

    @property
    def sites(self) -> list[Site]:
        """Every site, in the order in which they were added."""
        return self._directory.sites

    @property
    def log(self) -> list[Hit]:
        """Every request so far, in the order of their start, unfinished ones included."""
        return self._log.hits()

    @property
    def crawl_delays(self) -> dict[str, float]:
        """Crawl-delay in seconds by host, for the hosts whose `Site.asked_delay` is known."""
        delays: dict[str, float] = {}
        for site in self.sites:
            if site.asked_delay is not None:
                delays[site.host] = max(site.asked_delay, delays.get(site.host, 0.0))
        return delays

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

    def clear(self) -> None:
        """Remove every hit from the log. The pages go on counting their hits."""
        self._log.clear()

    def save(self, path: Path) -> None:
        """Write the log as JSON lines, for `load_log`."""
        save_log(self.log, path)

    def wait_for(self, predicate: Callable[[Sequence[Hit]], bool], timeout: float = 60.0) -> bool:
        """Block until the predicate is true for the log; return False after `timeout` seconds."""
        return self._log.wait_for(predicate, timeout)

    def start(self) -> Self:
        """Start to listen. Raises RuntimeError if that fails or takes more than 10 seconds."""
        self._thread = threading.Thread(target=self._run, name="loopback-web", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_SECONDS) or not self.port:
            raise RuntimeError("the loopback web could not listen on 127.0.0.1")
        return self

    def close(self) -> None:
        """Cut every connection and wait for the thread. Raises an error that a page raised."""
        if self._loop and self._stop and self._thread and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._directory.close()
        if self._errors:
            raise self._errors.pop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        await _stop_accepting(server)
        server.close()
        for task, writer in self._open.items():
            writer.transport.abort()  # because closing waits for a client that does not read
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        # A task that is cancelled before its first step does not close its connection.
        self._open.pop(task).transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await Connection(reader, writer, self._directory, self._log).serve()
        except Exception as error:  # noqa: BLE001 - of a page of the test: close() raises it
            self._errors.append(error)


async def _stop_accepting(server: asyncio.Server) -> None:
    """Stop accepting, and wait until connections that were just accepted have a transport.

    asyncio sets a transport up in three iterations of the loop after accept(). A server that closes
    in between leaves that socket open.
    """
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    for _ in range(4):
        await asyncio.sleep(0)
