"""R6, R9: a body that cannot be what its source declares is dropped at the headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import StopDownload

from walsh_scrapy import meta
from walsh_scrapy.metadata.mediatypes import may_be_feed

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Headers


class MediaTypes:
    """Stops the download of images, archives and the like before their first byte."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Listen for the headers of every response."""
        extension = cls()
        crawler.signals.connect(extension.headers_received, signal=signals.headers_received)
        return extension

    def headers_received(self, headers: Headers, request: Request) -> None:
        """Look at the Content-Type of a source's answer."""
        content_type = (headers.get("Content-Type") or b"").decode("latin-1")
        if meta.source(request) and not may_be_feed(content_type):
            request.meta[meta.UNWANTED] = content_type
            # The response goes on without its body: its status may mean something to a gate.
            raise StopDownload(fail=False)
