"""The scheduler between Scrapy and the frontier (R4, ruling 6)."""

import asyncio

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from walsh_scrapy import scheduler as module
from walsh_scrapy.scheduler import Scheduler


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ENOUGH", 3)
    crawler = get_crawler(settings_dict={"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"})
    return Scheduler.from_crawler(crawler)


def fed(scheduler, count):
    for number in range(count):
        scheduler.enqueue_request(Request(f"http://h{number}.example/"))


async def has_room(scheduler):
    """Tell whether a start request would be taken now: every task gets its turn in between."""
    task = asyncio.ensure_future(scheduler.room())
    for _ in range(5):
        await asyncio.sleep(0)
    done = task.done()
    task.cancel()
    return done


def test_a_start_request_waits_while_enough_hosts_could_be_asked(scheduler):
    async def scenario():
        fed(scheduler, 2)
        assert await has_room(scheduler)
        fed(scheduler, 3)  # one more: the others are duplicates
        assert not await has_room(scheduler)
        waiting = asyncio.ensure_future(scheduler.room())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert scheduler.next_request() is not None
        await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_hosts_that_rest_keep_nothing_out(scheduler):
    """Else ten thousand feeds of one host would keep all other hosts waiting."""

    async def scenario():
        fed(scheduler, 3)
        for number in range(3):
            scheduler.wait(f"h{number}.example", 60.0)
        assert await has_room(scheduler)

    asyncio.run(scenario())
