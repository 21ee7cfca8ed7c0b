"""Scrapy's download handler for HTTP/1.1, for a project's own crawl: it sends each request once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler as ScrapyHandler

from walsh_scrapy.crawl.scrapyinternals import send_once
from walsh_scrapy.policy.pacing import MAX_IDLE_CONNECTIONS, MAX_IDLE_SECONDS

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class HTTP11DownloadHandler(ScrapyHandler):
    """Scrapy's handler, but a request whose kept connection breaks fails, and is not sent again.

    A retry passes the middlewares, so it waits for its host (R4, R5). At most 32 connections are
    kept, each for at most 15 seconds.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        send_once(self, MAX_IDLE_CONNECTIONS, MAX_IDLE_SECONDS)
