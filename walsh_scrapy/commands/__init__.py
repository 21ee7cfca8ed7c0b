"""Commands of ``scrapy`` that this package replaces."""

from walsh_scrapy.tools import open_closed_streams

open_closed_streams()  # here, because Scrapy imports this package before it opens any file
