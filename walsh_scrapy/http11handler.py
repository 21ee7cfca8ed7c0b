"""Scrapy's download handler for HTTP/1.1, for a project's own crawl: it sends each request once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler as ScrapyHandler

from walsh_scrapy.crawl.scrapyinternals import close_idle, send_once
from walsh_scrapy.crawl.ticket import note, ticket_of
from walsh_scrapy.policy.pacing import MAX_IDLE_SCRAPY_CONNECTIONS, MAX_IDLE_SECONDS

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class HTTP11DownloadHandler(ScrapyHandler):
    """Scrapy's handler, but a request whose kept connection breaks fails, and is not sent again.

    A retry passes the middlewares, so it waits for its host, and has a new connection (R4, R5). At
    most 256 connections are kept, or a quarter of the descriptors that the process may open, each
    for at most 15 seconds.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        send_once(self, _max_idle_connections(), MAX_IDLE_SECONDS)

    async def download_request(self, request: Request) -> Response:
        """Return the response to a request. Raises the exceptions of Scrapy's handler."""
        if ticket_of(request).on_new_connection:
            close_idle(self)
        try:
            return await super().download_request(request)
        except Exception:
            note(request, on_new_connection=True)  # if it is sent again
            raise


def _max_idle_connections() -> int:
    if sys.platform == "win32":
        return MAX_IDLE_SCRAPY_CONNECTIONS
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MAX_IDLE_SCRAPY_CONNECTIONS
    return min(MAX_IDLE_SCRAPY_CONNECTIONS, descriptors // 4)
