"""Test a crawler against web servers on this machine, and check the log of those servers.

`LoopbackWeb` and `DirectWeb` serve any number of hosts. `run_crawl` and `simulate` crawl them, in
real or in simulated time. `assert_polite` checks the requests that the servers logged. It works for
every crawler, whatever it is written in.

Each name is imported when it is first used, because few tests need all of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walsh_scrapy.testing.crawl import CrawlResult, run_crawl, start_crawl, write_sources
    from walsh_scrapy.testing.directweb import DirectWeb
    from walsh_scrapy.testing.hit import ConnectionRecord, Hit
    from walsh_scrapy.testing.politeness import assert_polite, violations
    from walsh_scrapy.testing.signatures import verify_signature
    from walsh_scrapy.testing.simulation import FakeClock, simulate
    from walsh_scrapy.testing.site import (
        Answer,
        Certificate,
        Down,
        Fault,
        Raw,
        Reply,
        Site,
        redirect,
        silent,
    )
    from walsh_scrapy.testing.web import LoopbackWeb

__all__ = [
    "Answer", "Certificate", "ConnectionRecord", "CrawlResult", "DirectWeb", "Down",
    "FakeClock", "Fault", "Hit", "LoopbackWeb", "Raw", "Reply", "Site", "assert_polite",
    "redirect", "run_crawl", "silent", "simulate", "start_crawl", "verify_signature",
    "violations", "write_sources",
]  # fmt: skip

_NAMES = {
    "crawl": "CrawlResult run_crawl start_crawl write_sources",
    "directweb": "DirectWeb",
    "hit": "ConnectionRecord Hit",
    "politeness": "assert_polite violations",
    "signatures": "verify_signature",
    "simulation": "FakeClock simulate",
    "site": "Answer Certificate Down Fault Raw Reply Site redirect silent",
    "web": "LoopbackWeb",
}


def __getattr__(name: str) -> object:
    for module, names in _NAMES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
