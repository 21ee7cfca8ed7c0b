"""Scrapy's HTTP handler, without hidden retries and with verified certificates (decision 22)."""

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

#: Seconds to wait for the reactor to close an aborted connection.
CLOSING_SECONDS = 0.02


class DownloadHandler(HTTP11DownloadHandler):
    """Sends each request once, so that every retry passes the gates again (decision 1).

    If a connection that was kept alive breaks, Twisted sends a GET again at once, without pacing.
    Here the request fails instead, and a middleware retries it. A request to a host whose
    certificate is not valid fails with ``BadCertificate``, which is not retried.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._pool.retryAutomatically = False
        policy = CertificatePolicy(self._contextFactory)
        self._contextFactory = policy  # type: ignore[assignment]  # mypy knows no zope interfaces

    async def download_request(self, request: Request) -> Response:
        """Return the response once its connection is free or closed.

        The reactor closes an aborted connection a moment later. Until then the exchange has not
        ended for the server, and so not for pacing (decision 2). Raises BadCertificate or
        NoSecureConnection if TLS failed, else the exceptions of Scrapy's handler.
        """
        is_closed = False
        try:
            response = await super().download_request(request)
            is_closed = "download_stopped" not in response.flags
        except DownloadFailedError as error:
            found = tls_error(error, host_of(request.url))
            if found is None:
                raise
            logger.info("%s: %s", request.url, found)
            raise found from error
        finally:
            if not is_closed:
                await sleep(CLOSING_SECONDS)
        return response
