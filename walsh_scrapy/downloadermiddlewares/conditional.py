"""R7: asks whether a document changed, and takes 304 Not Modified for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy import meta
from walsh_scrapy.exceptions import NotModified

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class ConditionalMiddleware:
    """Echoes validators to the one URL they vouch for (order 560, ruling 17)."""

    def __init__(self, crawler: Crawler) -> None:
        self._stats = crawler.stats

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Count in the crawler's stats."""
        return cls(crawler)

    async def process_request(self, request: Request) -> None:
        """Send what is known of this very URL, and no validator that came along a redirect."""
        known: meta.Validators | None = request.meta.get(meta.VALIDATORS)
        same_url = known is not None and known.url == request.url
        _set(request, "If-None-Match", known.etag if known and same_url else None)
        _set(request, "If-Modified-Since", known.last_modified if known and same_url else None)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Turn 304 into ``NotModified``, for whoever made the request."""
        if response.status == 304 and request.meta.get(meta.VALIDATORS):
            self._stats.inc_value("walsh/conditional/not_modified")
            raise NotModified(response)
        return response


def _set(request: Request, name: str, value: bytes | None) -> None:
    request.headers.pop(name, None)
    if value is not None:
        request.headers[name] = value
