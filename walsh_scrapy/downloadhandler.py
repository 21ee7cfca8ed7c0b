"""Scrapy's HTTP handler, without the requests that Twisted would repeat behind our backs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class DownloadHandler(HTTP11DownloadHandler):
    """Sends a request once (ruling 1: every retry takes a slot of its host).

    When a connection that was kept open breaks, Twisted sends a GET again within milliseconds;
    here it fails, and is retried by a middleware, through the scheduler and every gate.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._pool.retryAutomatically = False
