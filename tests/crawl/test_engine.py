"""A crawl that was ended early is told from the other crawls of its process."""

import asyncio

from walsh_scrapy.crawl.engine import Engine


class ScrapysEngine:
    def __init__(self):
        self._slot = object()  # the spider is open
        self.reasons = []

    async def close_spider_async(self, reason):
        self.reasons.append(reason)


class Crawler:
    def __init__(self):
        self.engine = ScrapysEngine()


def test_a_crawl_is_open_while_it_may_have_requests():
    crawler = Crawler()
    engine = Engine(crawler)
    assert engine.is_open
    crawler.engine._slot = None  # the spider is closed
    assert not engine.is_open
    crawler.engine = None
    assert not engine.is_open


def test_a_crawl_that_ended_early_says_nothing_about_later_crawls():
    crawler = Crawler()
    first, second = Engine(crawler), Engine(Crawler())

    async def end():
        first.end("state_failed", "the disk is full")
        first.end("machine_trouble", "what follows from that")
        await asyncio.sleep(0)

    asyncio.run(end())
    assert first.ended_early
    assert not second.ended_early
    assert crawler.engine.reasons == ["state_failed"]
