"""Many crawls in one process, as a program runs them with Scrapy's runners."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers.sites import ADDON, IDENTITY, LIST_URL, OUR_HANDLER, blocklist, paths
from walsh_scrapy.testing.web import Reply, Site

MANY = 30
#: Prints how each crawl ended, and then the number of crawlers that are still in memory.
SCRIPT = f"""
import asyncio, gc, sys, weakref
from scrapy import Request, Spider, crawler
from twisted.internet.asyncioreactor import install

#: The loop runs without the reactor, which Scrapy's own handler needs.
SETTINGS = {ADDON | IDENTITY | OUR_HANDLER}
SETTINGS |= {{"WALSH_STATE_URL": sys.argv[2], "LOG_LEVEL": "ERROR"}}
SETTINGS["TELNETCONSOLE_ENABLED"] = False

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
def test_crawls_that_ended_leave_the_memory(direct_web, tmp_path, run_python, installed, runner):
    web = direct_web(Site("a.example", "User-agent: *\nDisallow: /\n", {}))
    state = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    done = run_python("-c", SCRIPT, runner, state, environment=web.environment)
    assert done.returncode == 0, done.stderr
    *ends, alive = done.stdout.split()
    assert ends == ["Denied", "Denied", "StateError"] * (MANY // 3)
    assert int(alive) <= 2


# Documents of the operator and of sites are fetched once, whatever the states of the crawls are.

DOCUMENTS_SCRIPT = """
import asyncio, json, sys
from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerRunner
from twisted.internet.asyncioreactor import install

class Page(Spider):
    name = "page"

    async def start(self):
        yield Request(f"http://a.example/{self.number}")

    def parse(self, response):
        print(response.url)

async def run(settings, crawls):
    runs = [AsyncCrawlerRunner(settings).crawl(Page, number=number) for number in range(crawls)]
    await asyncio.gather(*runs)

install(asyncio.new_event_loop())
asyncio.get_event_loop().run_until_complete(run(*json.loads(sys.argv[1])))
"""


@pytest.mark.long
def test_crawls_on_one_state_fetch_documents_once(direct_web, tmp_path, run_python, installed):
    pages = {f"/{number}": "text" for number in range(3)}
    operator = Site("operator.example", "", {"/blocklist.json": blocklist("optedout.example")})
    web = direct_web(Site("a.example", "User-agent: *\nDisallow: /private\n", pages), operator)
    common = (
        ADDON | IDENTITY | OUR_HANDLER | {"WALSH_BLOCKLIST_URL": LIST_URL, "LOG_LEVEL": "ERROR"}
    )
    common |= {"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"}
    call = json.dumps([common, 3])
    done = run_python("-c", DOCUMENTS_SCRIPT, call, environment=web.environment)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3, done.stderr
    requested = paths(web.log)
    assert requested.count("a.example/robots.txt") == 1
    assert requested.count("operator.example/blocklist.json") == 1


@pytest.mark.long
def test_processes_on_one_state_fetch_documents_once(direct_web, tmp_path, run_python, installed):
    """Each looks for the copy of the other once more before it sends a request."""
    listed = blocklist("optedout.example", delay=2.0)
    operator = Site("operator.example", Reply("", delay=2.0), {"/blocklist.json": listed})
    web = direct_web(Site("a.example", Reply("", delay=2.0), {"/0": "text"}), operator)
    state = {"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"}
    common = ADDON | IDENTITY | OUR_HANDLER | state
    common |= {"WALSH_BLOCKLIST_URL": LIST_URL, "LOG_LEVEL": "ERROR"}
    call = json.dumps([common, 1])

    def crawl(_number):
        return run_python("-c", DOCUMENTS_SCRIPT, call, environment=web.environment).stdout

    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(crawl, range(2)))
    assert [output.split() for output in outputs] == [["http://a.example/0"]] * 2
    once = [
        "a.example/robots.txt",
        "operator.example/blocklist.json",
        "operator.example/robots.txt",
    ]
    assert sorted(paths(web.log)) == sorted([*once, *["a.example/0"] * 2])
