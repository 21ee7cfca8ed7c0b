"""Stops the download of a body that its source does not need (R6, R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.exceptions import StopDownload

from walsh_scrapy.crawl.ticket import content_type_of, set_visit, visit_of
from walsh_scrapy.crawl.unpacking import counted_bytes

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Headers


class MediaTypes:
    """Stops downloads that the spider cannot read, before the first byte of the body.

    A page of which only the head is read is cut off after the bytes that may be its head.
    """

    def __init__(self) -> None:
        self._remaining: WeakKeyDictionary[Request, int] = WeakKeyDictionary()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Listen for the headers and the body of every response."""
        extension = cls()
        crawler.signals.connect(extension.headers_received, signal=signals.headers_received)
        crawler.signals.connect(extension.bytes_received, signal=signals.bytes_received)
        return extension

    def headers_received(self, headers: Headers, request: Request) -> None:
        """Stop the download if its spider cannot read this Content-Type."""
        visit = visit_of(request)
        if visit is None:
            return
        content_type = content_type_of(headers)
        is_readable = visit.readable(content_type)
        set_visit(request, visit.typed(content_type, is_readable=is_readable))
        if not is_readable:
            # The response is kept without its body, because a middleware may need its status.
            raise StopDownload(fail=False)
        if max_bytes := counted_bytes(request, headers):
            self._remaining[request] = max_bytes

    def bytes_received(self, data: bytes, request: Request) -> None:
        """Stop the download of a page once enough of it has come."""
        if request in self._remaining:
            self._remaining[request] -= len(data)
            if self._remaining[request] <= 0:
                raise StopDownload(fail=False)
