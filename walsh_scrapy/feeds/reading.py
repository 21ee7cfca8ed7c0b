"""Reads the documents of sources in the isolated process of a crawl (decision 34)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.crawl.childprocess import TooCostly
from walsh_scrapy.metadata.entries import NotAFeed

if TYPE_CHECKING:
    from walsh_scrapy.crawl.reading import Reader
    from walsh_scrapy.metadata.document import Document
    from walsh_scrapy.metadata.entries import Feed


async def read(reader: Reader, document: Document) -> Feed:
    """Return the feed or the links in a document.

    Raises as ``Reader.call``, but NotAFeed for a document that costs too much.
    """
    try:
        return await reader.call(document.url, document.read)
    except TooCostly as error:
        raise NotAFeed(str(error)) from None
