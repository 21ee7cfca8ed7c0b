"""What we ask of Scrapy's engine beyond its public API, in one place."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

_endings: list[asyncio.Future[None]] = []


def end_crawl(crawler: Crawler, reason: str) -> None:
    """End a crawl early; ``scrapy crawl`` then exits with 1."""
    _endings.append(asyncio.ensure_future(crawler.engine.close_spider_async(reason=reason)))


def has_ended_early() -> bool:
    """Return True if a crawl of this process was ended early."""
    return bool(_endings)


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
