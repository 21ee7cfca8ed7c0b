"""A crawl that was ended early is told from the other crawls of its process."""

import asyncio

from walsh_scrapy.runtime.engine import end_crawl, has_ended_early


class Engine:
    def __init__(self):
        self._slot = object()  # the spider is open
        self.reasons = []

    async def close_spider_async(self, reason):
        self.reasons.append(reason)


class Crawler:
    def __init__(self):
        self.engine = Engine()


def test_a_crawl_that_ended_early_says_nothing_about_later_crawls():
    first, second = Crawler(), Crawler()

    async def end():
        end_crawl(first, "state_failed", "the disk is full")
        end_crawl(first, "machine_trouble", "what follows from that")
        await asyncio.sleep(0)

    asyncio.run(end())
    assert has_ended_early(first)
    assert not has_ended_early(second)
    assert first.engine.reasons == ["state_failed"]
