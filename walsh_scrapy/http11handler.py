"""Scrapy's download handler for HTTP/1.1, for a project's own crawl: it sends each request once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler as ScrapyHandler

from walsh_scrapy.crawl.scrapyinternals import close_idle, send_once
from walsh_scrapy.crawl.ticket import note, ticket_of
from walsh_scrapy.policy.pacing import MAX_IDLE_CONNECTIONS, MAX_IDLE_SECONDS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class HTTP11DownloadHandler(ScrapyHandler):
    """Scrapy's handler, but a request whose kept connection breaks fails, and is not sent again.

    A retry passes the middlewares, so it waits for its host, and has a new connection (R4, R5). At
    most 32 connections are kept, each for at most 15 seconds.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        send_once(self, MAX_IDLE_CONNECTIONS, MAX_IDLE_SECONDS)

    async def download_request(self, request: Request) -> Response:
        """Return the response to a request. Raises the exceptions of Scrapy's handler."""
        if ticket_of(request).on_new_connection:
            close_idle(self)
        try:
            return await super().download_request(request)
        except Exception:
            note(request, on_new_connection=True)  # if it is sent again
            raise
