"""Many crawls in one process, as a program runs them with Scrapy's runners."""

import os
import sys

import pytest

from tests.helpers import execute
from tests.helpers.sites import ADDON, IDENTITY
from walsh_scrapy.testing.web import Site

MANY = 30
#: Prints how each crawl ended, and then the number of crawlers that are still in memory.
SCRIPT = f"""
import asyncio, gc, sys, weakref
from scrapy import Request, Spider, crawler
from twisted.internet.asyncioreactor import install

SETTINGS = {ADDON | IDENTITY} | {{"WALSH_STATE_URL": sys.argv[2], "LOG_LEVEL": "ERROR"}}

class Listed(Spider):
    name = "listed"
    number, breaks = 0, False

    async def start(self):
        yield Request(f"http://a.example/{{self.number}}", errback=self.ended)

    def ended(self, failure):
        print(type(failure.value).__name__)
        if self.breaks:
            raise ValueError(failure)

async def run(kind, number, **settings):
    one = kind(SETTINGS | settings).create_crawler(Listed)
    try:
        ended = kind(SETTINGS | settings).crawl(one, number=number, breaks=number % 3 == 1)
        if kind is crawler.CrawlerRunner:
            ended = ended.asFuture(asyncio.get_running_loop())
        await ended
    except Exception as error:
        print(type(error).__name__)
    return weakref.ref(one)

async def run_all(kind):
    crawlers = []
    for number in range({MANY}):
        bad = {{"WALSH_STATE_URL": "sqlite:////proc/none/x"}} if number % 3 == 2 else {{}}
        crawlers.append(await run(kind, number, **bad))
    await asyncio.sleep(0)
    gc.collect()
    print(sum(one() is not None for one in crawlers))

install(asyncio.new_event_loop())
asyncio.get_event_loop().run_until_complete(run_all(getattr(crawler, sys.argv[1])))
"""


@pytest.mark.long
@pytest.mark.parametrize("runner", ["CrawlerRunner", "AsyncCrawlerRunner"])
def test_crawls_that_ended_leave_the_memory(direct_web, tmp_path, installed, runner):
    web = direct_web(Site("a.example", "User-agent: *\nDisallow: /\n", {}))
    state = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    environment = os.environ | web.environment
    done = execute(sys.executable, "-c", SCRIPT, runner, state, env=environment)
    assert done.returncode == 0, done.stderr
    *ends, alive = done.stdout.split()
    assert ends == ["Denied", "Denied", "StateError"] * (MANY // 3)
    assert int(alive) <= 2
