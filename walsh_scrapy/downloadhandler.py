"""Scrapy's HTTP handler: each request goes out once, and to nobody who does not show who it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.exceptions import DownloadFailedError
from scrapy.utils.asyncio import sleep

from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.wire.certificates import CertificatePolicy
from walsh_scrapy.wire.tlserrors import tls_error

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = logging.getLogger(__name__)

#: Time enough for the reactor to close a connection.
CLOSING_SECONDS = 0.02


class DownloadHandler(HTTP11DownloadHandler):
    """Sends a request once (decision 1: every retry takes a slot of its host).

    When a connection that was kept open breaks, Twisted sends a GET again within milliseconds;
    here it fails, and is retried by a middleware, through the scheduler and every gate. A request
    to a host with a bad certificate fails with ``BadCertificate``, which nobody retries.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._pool.retryAutomatically = False
        policy = CertificatePolicy(self._contextFactory)
        self._contextFactory = policy  # type: ignore[assignment]  # mypy knows no zope interfaces

    async def download_request(self, request: Request) -> Response:
        """Return the response; say it in words if TLS is what kept it from us.

        A connection that we give up is closed when the reactor comes to it: only then is the
        exchange over for the server, and for pacing (decision 2).
        """
        is_closed = False
        try:
            response = await super().download_request(request)
            is_closed = "download_stopped" not in response.flags
        except DownloadFailedError as error:
            trouble = tls_error(error, host_of(request.url))
            if trouble is None:
                raise
            logger.info("%s: %s", request.url, trouble)
            raise trouble from error
        finally:
            if not is_closed:
                await sleep(CLOSING_SECONDS)
        return response
