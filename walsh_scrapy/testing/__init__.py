"""A loopback web and what tests need to judge a crawl by its server's log."""

from walsh_scrapy.testing.clock import FakeClock
from walsh_scrapy.testing.crawl import CrawlResult, run_crawl, start_crawl, write_sources
from walsh_scrapy.testing.politeness import assert_polite, violations
from walsh_scrapy.testing.web import (
    Certificate,
    Fault,
    Hit,
    LoopbackWeb,
    Reply,
    Site,
    load_log,
    redirect,
)

__all__ = [
    "Certificate",
    "CrawlResult",
    "FakeClock",
    "Fault",
    "Hit",
    "LoopbackWeb",
    "Reply",
    "Site",
    "assert_polite",
    "load_log",
    "redirect",
    "run_crawl",
    "start_crawl",
    "violations",
    "write_sources",
]
