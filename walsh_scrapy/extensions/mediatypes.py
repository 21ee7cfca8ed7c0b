"""R6, R9: a body that cannot be what its source declares is dropped at the headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import StopDownload

from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.negotiation import content_type_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Headers


class MediaTypes:
    """Stops the download of what its spider cannot read, before the first byte of its body."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Listen for the headers of every response."""
        extension = cls()
        crawler.signals.connect(extension.headers_received, signal=signals.headers_received)
        return extension

    def headers_received(self, headers: Headers, request: Request) -> None:
        """Look at the Content-Type of a source's answer."""
        readable = request.meta.get(meta.READABLE)
        content_type = content_type_of(headers)
        request.meta.pop(meta.UNWANTED, None)
        if readable is not None and not readable(content_type):
            request.meta[meta.UNWANTED] = content_type
            # The response goes on without its body: its status may mean something to a gate.
            raise StopDownload(fail=False)
