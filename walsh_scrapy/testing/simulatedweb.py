"""The web of a simulation, and the download handler by which a crawl requests from it."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from email.utils import formatdate
from typing import Final, Self
from urllib.parse import urlsplit

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, StopDownload
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes

from walsh_scrapy.testing.directory import Directory
from walsh_scrapy.testing.hit import DEFAULT_PORTS, Hit
from walsh_scrapy.testing.log import Log
from walsh_scrapy.testing.reply import Fault, Page, Raw, Reply, reply_of
from walsh_scrapy.testing.simulatedtime import SimulatedTime
from walsh_scrapy.testing.site import Site

#: The least seconds that each response takes.
LATENCY: Final = 0.1


class SimulatedWeb:
    """Answers as `LoopbackWeb` does, https too, in simulated time, and logs every request."""

    def __init__(self, sites: Iterable[Site], clock: SimulatedTime) -> None:
        self.log = Log[Hit]()
        self._clock = clock
        self._directory = Directory()
        self._directory.add(*(replace(site, tls=None) for site in sites))

    async def answer(self, request: Request, crawler: Crawler) -> Response:
        """Return the response to a request, after its latency and delay."""
        hit, page = self._directory.page_for(self._hit(request))
        key = self.log.open(hit)
        try:
            reply = _reply_of(page, hit)
            response = await self._response(request, reply, crawler)
        except BaseException:
            failed = replace(hit, ended=self._clock.kept)
            self.log.change(key, lambda _: failed)
            raise
        answered = replace(
            hit,
            ended=self._clock.kept,
            status=reply.status,
            answer=reply.header_pairs(),
            size=len(response.body),
            complete="download_stopped" not in response.flags,
        )
        self.log.change(key, lambda _: answered)
        return response

    def _hit(self, request: Request) -> Hit:
        url = urlsplit(request.url)
        pairs = request.headers.to_unicode_dict().items()
        return Hit(
            started=self._clock.kept,
            ended=float("inf"),
            wall=self._clock.wall,
            method=request.method,
            scheme=url.scheme,
            host=(url.hostname or "").rstrip("."),
            port=url.port or DEFAULT_PORTS[url.scheme],
            path=(url.path or "/") + (f"?{url.query}" if url.query else ""),
            headers=(("Host", url.netloc), *((str(name), str(text)) for name, text in pairs)),
        )

    async def _response(self, request: Request, reply: Reply, crawler: Crawler) -> Response:
        seconds, most = LATENCY + reply.delay + reply.drip, request.meta["download_timeout"]
        await asyncio.sleep(min(seconds, most))
        if seconds > most:
            raise DownloadTimeoutError(f"Getting {request.url} took longer than {most} seconds.")
        if reply.fault is not None:
            raise DownloadFailedError(f"Connection was lost: {Fault(reply.fault).value}")
        body, headers, flags = reply.content(), Headers(reply.header_pairs()), []
        headers.setdefault("Date", formatdate(self._clock.wall, usegmt=True))
        if _is_stopped(headers, request, crawler):
            body, flags = b"", ["download_stopped"]
        kind = responsetypes.from_args(headers=headers, url=request.url, body=body)
        return kind(
            request.url, status=reply.status, headers=headers, body=body, flags=flags,
            request=request,
        )  # fmt: skip


def _reply_of(page: Page, hit: Hit) -> Reply:
    reply = reply_of(page, hit)
    if isinstance(reply, Raw):
        raise TypeError(f"{hit.url}: a simulation has no wire for raw bytes")
    return reply


def _is_stopped(headers: Headers, request: Request, crawler: Crawler) -> bool:
    """Return True if a listener of `headers_received` stops the download."""
    results = crawler.signals.send_catch_log(
        signals.headers_received,
        headers=headers,
        body_length=None,
        request=request,
        dont_log=StopDownload,
    )
    values = (getattr(result, "value", None) for _, result in results)
    return any(isinstance(value, StopDownload) for value in values)


class SimulatedHandler:
    """The download handler of each crawl; all of them share one web."""

    lazy = False
    web: SimulatedWeb

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the handler of one crawl."""
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        """Return the web's response."""
        return await self.web.answer(request, self._crawler)

    async def close(self) -> None:
        """Do nothing: the next run uses the same web."""
