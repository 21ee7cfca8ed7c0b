"""Requests of other projects' spiders: forms, download slots, deferral and cancellation."""

import os
import sys
from dataclasses import replace
from queue import SimpleQueue

import pytest

from tests.helpers import LONGEST, execute
from tests.helpers.sites import (
    ADDON,
    AGENT,
    IDENTITY,
    LIST_URL,
    blocklist,
    paths,
    rows_of,
    write_project,
)
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Certificate, Reply, Site, redirect

SPIDERS = """
import asyncio
import sqlite3
from contextlib import closing
from scrapy import FormRequest, Request, Spider, signals


class Theirs(Spider):
    async def asked(self, link):
        try:
            await self.crawler.engine.download_async(Request(link))
        except Exception as reason:
            self.logger.info("%s was asked for: %r", link, reason)

    def parse(self, response):
        yield {"url": response.url}

    def ended(self, failure):
        yield {"url": failure.request.url, "trouble": type(failure.value).__name__}


class Watchful(Theirs):
    @classmethod
    def from_crawler(cls, crawler, **arguments):
        spider = super().from_crawler(crawler, **arguments)
        crawler.signals.connect(spider.is_out, signal=signals.request_reached_downloader)
        return spider


class Visitor(Watchful):
    name = "visitor"

    def is_out(self, request):
        if request.url == "http://left.example/":
            self.late.cancel()

    async def start(self):
        self.late = asyncio.ensure_future(self.asked("http://left.example/"))
        yield FormRequest("http://form.example/", formdata={"q": "x"}, errback=self.ended)
        for host in ("slow", "quick"):
            yield Request(f"http://{host}.example/", meta={"download_slot": "theirs"})
        yield Request("http://rests.example/1", errback=self.ended)
        yield Request("http://chain.example/1", self.chain)

    def chain(self, response):
        number = int(response.url[-1])
        if number < 4:
            yield response.follow(f"/{number + 1}", self.chain)
        else:
            yield Request("http://rests.example/2", errback=self.ended)


class Gatherer(Theirs):
    name = "gatherer"

    async def start(self):
        yield Request("http://h0.example/")

    async def parse(self, response):
        links = (f"http://h{number}.example/" for number in range(1, 9))
        await asyncio.gather(*map(self.asked, links))


class Uploader(Theirs):
    name = "uploader"
    sent = []

    async def start(self):
        for scheme in ("http", "https"):
            for method in ("POST", "PUT"):
                url = f"{scheme}://{scheme}.example/{method}"
                self.sent.append(Request(url, self.whole, method, body=b"x" * 2**20))
                yield self.sent[-1]

    def whole(self, response):
        is_sent = any(response.request is each for each in self.sent)
        yield {"url": response.url, "body": response.text if is_sent else "of a copy"}


class Listed(Theirs):
    name = "listed"

    async def start(self):
        for host in self.hosts.split():
            yield Request(f"http://{host}.example/")


class Hurried(Watchful):
    name = "hurried"

    async def start(self):
        yield Request("http://a.example/")

    def is_out(self, request):
        if request.url.endswith("/blocklist.json"):
            self.early = asyncio.ensure_future(self.asked("http://b.example/"))
            with closing(sqlite3.connect(self.state)) as state, state:
                state.execute("DROP TABLE blocklist")
"""


def page_of(text):
    return Reply(text, content_type="text/plain")


def page(**reply):
    return Reply("<!doctype html>", content_type="text/html", **reply)


@pytest.fixture
def project(tmp_path, installed):
    return write_project(tmp_path / "project", ADDON | IDENTITY, spiders=SPIDERS)


def polite(served, **terms):
    """Judge what was served, but for the form: the judge expects GET, as of our own spiders."""
    log = [hit for hit in served.log if hit.method == "GET"]
    manners = {"user_agent": AGENT, "serial": False, "connections": served.connections}
    assert_polite(log, **manners | terms)


def test_forms_download_slots_and_hosts_that_waited(direct_web, crawl, project):
    later = Reply(status=503, headers={"Retry-After": "3"})
    web = direct_web(
        Site("form.example", "", {"/": [redirect("/", 303), page()]}),
        Site("slow.example", "", {"/": page(delay=1.5)}),
        Site("quick.example", "", {"/": page()}),
        Site("left.example", "", {"/": page(delay=0.5)}),
        Site("rests.example", [later, ""], {"/1": page(), "/2": page()}),
        Site("chain.example", "", {f"/{number}": page() for number in range(1, 5)}),
    )
    settings = {
        "WALSH_SERIAL": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "WALSH_MAX_WAIT": 2,
        "JOBDIR": project / "job",
    }
    result = crawl(web, "visitor", project=project, settings=settings)
    assert result.exit_code == 0
    assert {item["url"]: item.get("trouble") for item in result.items} == {
        "http://form.example/": None,
        "http://slow.example/": None,
        "http://quick.example/": None,
        "http://rests.example/1": "RequestDeferred",
        "http://rests.example/2": None,
    }
    (slow, quick) = (
        next(hit for hit in result.log if hit.url == f"http://{host}.example/")
        for host in ("slow", "quick")
    )
    assert quick.started < slow.ended, "with its host taken, it waits in no slot"
    assert "deferred          1" in result.stderr, "the page, and not the robots.txt before it"

    left = "SELECT status FROM requests WHERE url = 'http://left.example/'"
    assert rows_of(crawl, left) == [(200,)], "who gave up waiting did not stop it"
    assert rows_of(crawl, "SELECT max(busy_until) FROM hosts")[0] == (0.0,)

    started_again = crawl(web, "visitor", project=project, settings=settings)
    assert sorted(paths(started_again.log)) == ["left.example/", "rests.example/1"], (
        "what passes the scheduler, and of what it knows that which was deferred"
    )
    polite(web)


def method_and_size(hit):
    """The web answers a request whose body came whole."""
    return page_of(f"{hit.method} {dict(hit.headers)['Content-Length']}")


@pytest.mark.parametrize("through", ["direct_web", "loopback_web"], ids=["direct", "proxy"])
def test_a_body_arrives_whole(request, through, crawl, project):
    sites = [
        Site(f"{scheme}.example", "", {f"/{method}": method_and_size for method in ("POST", "PUT")})
        for scheme in ("http", "https")
    ]
    sites[1] = replace(sites[1], tls=Certificate.GOOD)
    web = request.getfixturevalue(through)(*sites)
    result = crawl(web, "uploader", project=project, settings={"DOWNLOAD_TIMEOUT": 20})
    assert {item["url"]: item["body"] for item in result.items} == {
        f"{scheme}://{scheme}.example/{method}": f"{method} {2**20}"
        for scheme in ("http", "https")
        for method in ("POST", "PUT")
    }


def test_a_stopped_crawl_sends_no_further_request(direct_web, crawl, project):
    hosts = [f"h{number}.example" for number in range(9)]
    started, stopped = SimpleQueue(), []

    def stop(_hit):
        """Stop the crawl before the answer, so that it is told first."""
        if not stopped:
            stopped.append(started.get(timeout=LONGEST))
            stopped[0].terminate()
        return page(delay=0.5)

    first, *others = hosts
    web = direct_web(
        Site(first, "", {"/": page()}), *(Site(host, "", {"/": stop}) for host in others)
    )
    running = crawl.start(web, "gatherer", project=project)
    started.put(running)
    result = running.wait()
    assert result.exit_code == 0
    polite(result, serial=True)
    assert len([hit for hit in result.log if hit.path == "/"]) == 2
    assert result.stderr.count(" was asked for: StillDue") == len(others) - 1


def test_two_crawls_of_one_process_are_serial_together(direct_web, project):
    hosts = ("a", "b", "c", "d")
    web = direct_web(*(Site(f"{host}.example", "", {"/": page(delay=0.3)}) for host in hosts))
    script = """
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings
process = CrawlerProcess(get_project_settings())
for hosts in ("a b", "c d"):
    process.crawl("listed", hosts=hosts)
process.start()
"""
    environment = os.environ | web.environment
    done = execute(sys.executable, "-c", script, cwd=project, env=environment)
    assert done.returncode == 0, done.stderr
    polite(web, serial=True)
    assert len([hit for hit in web.log if hit.path == "/"]) == 4, done.stderr


def test_requests_that_wait_for_the_blocklist_are_deferred_if_the_state_fails(
    direct_web, crawl, project
):
    operator = {"/blocklist.json": blocklist("optedout.example")}
    hosts = ("a.example", "b.example")
    web = direct_web(
        Site("operator.example", "", operator), *(Site(host, "", {"/": page()}) for host in hosts)
    )
    result = crawl(
        web,
        "hurried",
        project=project,
        settings={"WALSH_BLOCKLIST_URL": LIST_URL},
        arguments={"state": crawl.folder / "walsh.sqlite3"},
    )
    assert "no such table: blocklist" in result.stderr
    assert "http://b.example/ was asked for: StateUnavailable" in result.stderr
    assert not {"a.example/", "b.example/"} & set(paths(result.log))
