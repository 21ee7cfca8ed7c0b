"""Scrapy without this project: `python scrapy_spider.py` as installed, with `polite` politely.

The settings are those of https://docs.scrapy.org/en/latest/topics/settings.html and of
https://docs.scrapy.org/en/latest/topics/autothrottle.html that make a crawl more polite.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import scrapy
from scrapy.crawler import CrawlerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response

#: Every setting of Scrapy that makes a crawl more polite.
POLITE = {
    "USER_AGENT": "Example-Bot/1.0 (+https://bot.example/)",
    "ROBOTSTXT_OBEY": True,
    "AUTOTHROTTLE_ENABLED": True,
    "AUTOTHROTTLE_START_DELAY": 1,
    "DOWNLOAD_DELAY": 1,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "CONCURRENT_REQUESTS": 1,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "COOKIES_ENABLED": False,
    "REFERER_ENABLED": False,
    "HTTPCACHE_ENABLED": True,
    "HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy",
    "HTTPCACHE_DIR": f"{os.environ['CONFORMANCE_FOLDER']}/httpcache",
}


class SeedsSpider(scrapy.Spider):
    """Asks for each seed."""

    name = "seeds"

    seeds = Path(os.environ["CONFORMANCE_SEEDS"]).read_text("utf-8").split()

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """Yield requests that Scrapy may filter, unlike those of `start_urls`."""
        for url in self.seeds:
            yield scrapy.Request(url)

    def parse(self, response: Response) -> Iterator[dict[str, object]]:
        """Yield an item, as any spider would."""
        yield {"url": response.url, "size": len(response.body)}


process = CrawlerProcess(POLITE if sys.argv[1:] == ["polite"] else {})
process.crawl(SeedsSpider)
process.start()
