"""A web on one loopback port: an HTTP/1.1 server that is the forward proxy of every host it plays.

    with LoopbackWeb(Site("blog.example", pages={"/feed.xml": "<rss/>"})) as web:
        ...  # run a crawler with web.environment, then look at web.log

Nothing but the standard library, nothing but 127.0.0.1. An `https://` URL reaches it as CONNECT,
which is logged and refused; `_answer` is where a tunnel with certificates would branch off.
"""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from walsh_scrapy.testing.exchange import Exchange
from walsh_scrapy.testing.hit import Hit, Log, load_log, save_log
from walsh_scrapy.testing.reply import Fault, Page, Reply, redirect
from walsh_scrapy.testing.site import NO_SUCH_HOST, NO_TUNNEL, Site
from walsh_scrapy.testing.wire import MalformedRequestError, hit_of, parse_request

__all__ = [
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

_START_SECONDS = 10.0
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class LoopbackWeb:
    """A dozen sites, or thousands, on one port; serves from `start` to `close`, in a thread."""

    def __init__(self, *sites: Site) -> None:
        self._sites: dict[str, Site] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._log = Log()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._errors: list[Exception] = []
        self.port = 0  #: of 127.0.0.1, chosen by the system at the start
        self.add(*sites)

    def add(self, *sites: Site) -> None:
        """Put sites into the web, also while it serves; one of the same name is replaced."""
        self._sites = self._sites | {site.key: site for site in sites}

    @property
    def sites(self) -> list[Site]:
        """Every site, in the order in which they were added."""
        return list(self._sites.values())

    @property
    def log(self) -> list[Hit]:
        """Every request so far, in the order of their start, those still going on included."""
        return self._log.hits()

    @property
    def crawl_delays(self) -> dict[str, float]:
        """Seconds that hosts ask of us in their robots.txt, as far as their descriptions show."""
        delays: dict[str, float] = {}
        for site in self.sites:
            if site.asked_delay is not None:
                delays[site.host] = max(site.asked_delay, delays.get(site.host, 0.0))
        return delays

    @property
    def url(self) -> str:
        """The web's own address, as a proxy."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that send everything, https too, through this web."""
        proxies = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY")
        return dict.fromkeys(proxies, self.url) | {"no_proxy": "", "NO_PROXY": ""}

    def clear(self) -> None:
        """Forget the log. Pages that answer by the number of the hit go on counting."""
        self._log.clear()

    def save(self, path: Path) -> None:
        """Write the log as JSON lines, for `load_log`."""
        save_log(self.log, path)

    def wait_for(self, predicate: Callable[[Sequence[Hit]], bool], timeout: float = 60.0) -> bool:
        """Block until the predicate holds of the log; return False after `timeout` seconds."""
        return self._log.wait_for(predicate, timeout)

    def start(self) -> Self:
        """Listen, and return once the port is known."""
        self._thread = threading.Thread(target=self._run, name="loopback-web", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_SECONDS) or not self.port:
            raise RuntimeError("the loopback web could not listen on 127.0.0.1")
        return self

    def close(self) -> None:
        """Cut every connection, wait for the thread, and raise what a page of yours raised."""
        if self._loop and self._stop and self._thread and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
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
            writer.transport.abort()  # or closing would wait for a client that does not read
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        # A task that is cancelled before its first step closes nothing itself.
        self._open.pop(task).transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left: what it got stands in the log
        except Exception as error:  # noqa: BLE001 - a page of the test's own: close() raises it
            self._errors.append(error)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and answer it; return whether the connection goes on."""
        try:
            request = parse_request(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(int(request.value("content-length") or 0))
            hit = hit_of(request, writer.get_extra_info("peername")[1])
        except (MalformedRequestError, ValueError, asyncio.LimitOverrunError):
            writer.write(_BAD_REQUEST)
            return False
        hit, page = self._page_for(hit)
        key = self._log.open(hit)
        exchange = Exchange(reader, writer, lambda told: self._log.close(key, _told(hit, told)))
        goes_on = await exchange.send(page, hit)
        return goes_on and request.keeps_alive

    def _page_for(self, hit: Hit) -> tuple[Hit, Page]:
        if hit.method == "CONNECT":
            return hit, NO_TUNNEL
        site = self._sites.get(f"{hit.host}:{hit.port}") or self._sites.get(hit.host)
        if site is None:
            return hit, NO_SUCH_HOST
        path, page = site.page(hit.path)
        self._counts[site.key, path] += 1
        return replace(hit, number=self._counts[site.key, path]), page


async def _stop_accepting(server: asyncio.Server) -> None:
    """Let connections that were just accepted come into being: asyncio leaks them otherwise.

    A server that closes between accept() and the first step of the new transport (three turns of
    the loop in all) leaves that transport's socket open.
    """
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    for _ in range(4):
        await asyncio.sleep(0)


def _told(hit: Hit, exchange: Exchange) -> Hit:
    return replace(
        hit,
        ended=exchange.alive,
        complete=exchange.complete,
        status=exchange.status,
        answer=exchange.headers,
        size=exchange.size,
    )
