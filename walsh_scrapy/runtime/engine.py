"""What we ask of Scrapy's engine beyond its public API, in one place."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

#: How a run ended that could not go on (decision 29), as Scrapy names it.
EndReason = Literal[
    "export_failed", "gate_failed", "log_failed", "machine_trouble", "state_failed",
    "summary_failed",
]  # fmt: skip

logger = logging.getLogger(__name__)

#: The crawls that were ended early, each with the task that ends it.
_ended: WeakKeyDictionary[Crawler, asyncio.Future[None] | None] = WeakKeyDictionary()


def end_crawl(crawler: Crawler, reason: EndReason, why: str = "") -> None:
    """End a crawl early; ``scrapy crawl`` then exits with 1.

    ``why`` is a sentence for the log (CRITICAL). What the crawl has written is closed as usual, and
    what is due stays due. Only the first call for a crawl counts, and only it is logged: what
    follows mostly has the same cause.
    """
    if crawler in _ended:
        return
    if why:
        logger.critical("%s", why)
    is_closed = _slot_of(crawler) is None  # then only the exit status is left to be changed
    end = None if is_closed else crawler.engine.close_spider_async(reason=reason)
    _ended[crawler] = asyncio.ensure_future(end) if end else None


def has_ended_early(crawler: Crawler) -> bool:
    """Return True if a crawl was ended early; other crawls of the process do not count."""
    return crawler in _ended


def has_begun(crawler: Crawler) -> bool:
    """Return True if a crawl has its engine, so that it can be ended; False while it starts."""
    try:
        return crawler.engine is not None
    except RuntimeError:  # Scrapy's answer before the engine is there
        return False


def is_closing(crawler: Crawler) -> bool:
    """Return True if the spider is closing: it sends no more requests, and waits for the last."""
    slot = _slot_of(crawler)
    return slot is None or slot.closing is not None


def ask_for_requests(crawler: Crawler) -> None:
    """Let the engine ask its scheduler now; by itself it does so every five seconds."""
    if slot := _slot_of(crawler):
        slot.nextcall.schedule()


def is_active(crawler: Crawler, request: Request) -> bool:
    """Return True while a request is in the downloader or one of its middlewares."""
    return request in crawler.engine.downloader.active


def _slot_of(crawler: Crawler) -> Any:  # noqa: ANN401 - Scrapy's own, with no public type
    return crawler.engine._slot  # noqa: SLF001 - the one private name that we need
