"""A loopback web and what tests need to judge a crawl by its server's log.

Each name is imported when it is first asked for: pytest loads the plugin of this package at every
start, in projects that do not use it too.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walsh_scrapy.testing.clock import FakeClock
    from walsh_scrapy.testing.connections import ConnectionRecord
    from walsh_scrapy.testing.crawl import CrawlResult, run_crawl, start_crawl
    from walsh_scrapy.testing.directweb import DirectWeb
    from walsh_scrapy.testing.hit import Hit, load_log
    from walsh_scrapy.testing.names import Answer, silent
    from walsh_scrapy.testing.politeness import assert_polite, violations
    from walsh_scrapy.testing.project import write_sources
    from walsh_scrapy.testing.reply import Fault, Raw, Reply, redirect
    from walsh_scrapy.testing.signatures import verify_signature
    from walsh_scrapy.testing.simulation import simulate
    from walsh_scrapy.testing.site import Certificate, Down, Site
    from walsh_scrapy.testing.web import LoopbackWeb

__all__ = [
    "Answer",
    "Certificate",
    "ConnectionRecord",
    "CrawlResult",
    "DirectWeb",
    "Down",
    "FakeClock",
    "Fault",
    "Hit",
    "LoopbackWeb",
    "Raw",
    "Reply",
    "Site",
    "assert_polite",
    "load_log",
    "redirect",
    "run_crawl",
    "silent",
    "simulate",
    "start_crawl",
    "verify_signature",
    "violations",
    "write_sources",
]

_HOMES = {
    "Answer": "names",
    "Certificate": "site",
    "ConnectionRecord": "connections",
    "CrawlResult": "crawl",
    "DirectWeb": "directweb",
    "Down": "site",
    "FakeClock": "clock",
    "Fault": "reply",
    "Hit": "hit",
    "LoopbackWeb": "web",
    "Raw": "reply",
    "Reply": "reply",
    "Site": "site",
    "assert_polite": "politeness",
    "load_log": "hit",
    "redirect": "reply",
    "run_crawl": "crawl",
    "silent": "names",
    "simulate": "simulation",
    "start_crawl": "crawl",
    "verify_signature": "signatures",
    "violations": "politeness",
    "write_sources": "project",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
