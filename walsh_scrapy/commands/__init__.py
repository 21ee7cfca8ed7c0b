"""The commands that this project adds to ``scrapy``."""

from walsh_scrapy.tools import open_closed_streams

open_closed_streams()  # Scrapy imports this before it opens anything
