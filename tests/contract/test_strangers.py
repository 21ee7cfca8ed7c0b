"""A stranger's project: what it is told at the start, and what it keeps under its own identity."""

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from queue import SimpleQueue

import pytest

from tests.helpers import HANG_SECONDS
from tests.helpers.sites import (
    ADDON,
    AGENT,
    IDENTITY,
    LIST_URL,
    OUR_HANDLER,
    blocklist,
    log_lines,
    paths,
    refusal,
    rows_of,
    write_project,
)
from walsh_scrapy import identity
from walsh_scrapy.crawl.job import FILE
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Certificate, Reply, Site, redirect

SPIDER = """
from scrapy import Request
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler

from tests.helpers.theirs import Urls
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.feeds.spiders import FeedsSpider


class Pages(Urls):
    name = "pages"
    urls = "http://a.example/ http://a.example/private"

    def request(self, url):
        return Request(url)

    def parse(self, response):
        yield {"url": response.url, "flags": response.flags}


class Odd(Urls):
    name = "odd"

    def request(self, url):
        own = {"Authorization": "Bearer x", "User-Agent": "Firefox/140"}
        return Request(url, headers=own, cookies={"session": "1"}, errback=self.ended)


class Any(Urls, DeclaringSpider):
    name = "any"
    custom_settings = {"WALSH_SCOPE": "any"}


class Later:
    def update_settings(self, settings):
        settings["DOWNLOAD_HANDLERS"]["http"] = "theirs.spiders.Browser"


class LaterTable:
    def update_settings(self, settings):
        settings.set("DOWNLOAD_HANDLERS", {"http": "theirs.spiders.Browser"}, "addon")
        settings.set("USER_AGENT", "Firefox/140", "addon")


class Declared(FeedsSpider):
    name = "declared"


class Browser(HTTP11DownloadHandler):
    async def download_request(self, request):
        response = await super().download_request(request)
        return response.replace(flags=["browser"])
"""
PRIVATE = "User-agent: theirs\nDisallow: /private\n"


@pytest.fixture
def run(crawl, tmp_path, installed):
    """Run the spider of a project that has these settings, and nothing else."""

    def run_spider(web, *lines, spider="pages", urls="", **settings):
        given = {"BOT_NAME": "theirs"} | settings
        project = write_project(tmp_path / "project", given, *lines, spiders=SPIDER)
        arguments = {"urls": urls} if urls else {}
        return crawl(web, spider, project=project, arguments=arguments)

    return run_spider


@pytest.fixture
def web(direct_web):
    pages = {"/": Reply("<title>x</title>", content_type="text/html"), "/private": "x"}
    return direct_web(Site("a.example", PRIVATE, pages))


def test_gates_that_are_used_alone_say_all_they_need_at_once(web, run):
    ours = "walsh_scrapy.downloadermiddlewares"
    theirs = {
        "USER_AGENT": "theirs/2 (+https://their.example/)",
        "DOWNLOADER_MIDDLEWARES": {
            f"{ours}.robots.RobotsMiddleware": 100,
            f"{ours}.pacing.PacingMiddleware": 890,
        },
    }
    first = run(web, **theirs, ROBOTSTXT_OBEY=True, DOWNLOAD_DELAY=1)
    told = refusal(first)
    assert told.startswith("2 settings ")
    robots = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware must be None"
    for words in (robots, "DOWNLOAD_DELAY is 1"):
        assert words in told

    second = run(web, **theirs, ROBOTSTXT_OBEY=False, DOWNLOAD_DELAY=0)
    assert second.exit_code == 0, second.stderr
    assert paths(second.log) == ["a.example/robots.txt", "a.example/"]
    assert {hit.header("User-Agent") for hit in second.log} == {theirs["USER_AGENT"]}
    assert log_lines(second, "http://a.example/private is denied", "line 2")


@pytest.mark.parametrize("order", [200, 800], ids=["before", "after"])
def test_the_handler_of_another_add_on_is_used_in_either_order(web, run, order):
    addons = {"walsh_scrapy.Addon": 500, "theirs.spiders.Later": order}
    result = run(web, **IDENTITY, ADDONS=addons)
    assert [item["flags"] for item in result.items] == [["browser"]] * 2
    assert warnings_of(result) == [], "its requests are the project's"


def test_a_handler_of_a_declared_crawl_is_told_what_it_must_keep(web, crawl, tmp_path, installed):
    theirs = {"DOWNLOAD_HANDLERS": {"http": "theirs.spiders.Browser"}}
    project = write_project(tmp_path / "project", ADDON | IDENTITY | theirs, spiders=SPIDER)
    result = crawl(web, "declared", project=project, sources=["http://a.example/feed.xml"])
    (warning,) = [line for line in warnings_of(result) if "DOWNLOAD_HANDLERS" in line]
    assert "theirs.spiders.Browser" in warning
    assert all(word in warning for word in ("cookies", "Referer", "one connection"))


def test_a_handler_that_cannot_be_imported_is_refused(web, run):
    theirs = {"http": "theirs.spiders.Missing"}
    told = refusal(run(web, **ADDON, **IDENTITY, DOWNLOAD_HANDLERS=theirs))
    assert told.startswith(f"DOWNLOAD_HANDLERS is {theirs}, ")


@pytest.mark.parametrize("later", ["Later", "LaterTable"])
def test_walsh_research_ignores_what_a_later_add_on_sets(web, crawl, tmp_path, installed, later):
    addons = {"ADDONS": {"walsh_scrapy.Addon": 300, f"theirs.spiders.{later}": 500}}
    named = {"WALSH_USER_AGENT": identity.USER_AGENT}
    project = write_project(tmp_path / "project", addons | named, spiders=SPIDER)
    result = crawl(web, "declared", project=project, sources=["http://a.example/feed.xml"])
    assert {hit.header("User-Agent") for hit in result.log} == {identity.USER_AGENT}
    warnings = [line.partition("WARNING: ")[2] for line in warnings_of(result)]
    (handler,) = [line for line in warnings if line.startswith("DOWNLOAD_HANDLERS")]
    assert "theirs.spiders.Browser" in handler
    assert all(name in handler for name in ("WALSH_USER_AGENT", "WALSH_UA_TOKEN"))
    agents = [line for line in warnings if line.startswith("USER_AGENT = 'Firefox/140' is ignored")]
    assert len(agents) == (later == "LaterTable")


def test_what_a_bot_keeps_under_its_own_identity(direct_web, run, crawl, tmp_path):
    page = Reply("<title>x</title>", content_type="text/html")
    web = direct_web(
        Site("a.example", "", {"/": page, "/403": [Reply(status=403), page]}),
        Site("busy.example", "", {"/": [Reply(status=503, headers={"Retry-After": "1"}), page]}),
    )
    theirs = {
        **ADDON,
        **IDENTITY,
        "RETRY_HTTP_CODES": [403, 429, 503],
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_IGNORE_HTTP_CODES": [403],
        "HTTPCACHE_DIR": str(tmp_path / "cache"),
        "DOWNLOAD_HANDLERS": {"http": "theirs.spiders.Browser"},
        "CONCURRENT_REQUESTS": 16,
    }
    urls = "http://a.example/ http://a.example/403 http://busy.example/"
    first = run(web, urls=urls, **theirs)
    assert sorted(item["url"] for item in first.items) == sorted(urls.split())
    assert all("browser" in item["flags"] for item in first.items)
    assert first.stats["retry/count"] == 2, "the 403, and the 503 of the backoff gate"
    assert first.stats["walsh/backoff/retried"] == 1
    warnings = [line.partition("WARNING: ")[2] for line in warnings_of(first)]
    (codes,) = warnings
    assert "RETRY_HTTP_CODES = [403, 429, 503] is ignored and [403] is used" in codes

    second = run(web, urls=urls, **theirs)
    assert second.log == [], "a copy is no request"
    assert second.stats["httpcache/hit"] == 3
    (rows,) = rows_of(crawl, "SELECT count(*) FROM requests")[0]
    assert rows == len(first.log)


def test_a_declared_crawl_requests_http_and_https_only(web, run):
    others = ["data:,x", "file:///etc/hostname", "ftp://a.example/x", "s3://a.example/x"]
    urls = " ".join([*others, "http://a.example/"])
    result = run(web, spider="any", urls=urls, **ADDON, **IDENTITY)
    assert paths(result.log) == ["a.example/robots.txt", "a.example/"]
    assert {item["url"]: item.get("why", "").split()[-2:] for item in result.items} == {
        "data:,x": ["not", "data"],
        "file:///etc/hostname": ["not", "file"],
        "ftp://a.example/x": ["not", "ftp"],
        "s3://a.example/x": ["not", "s3"],
        "http://a.example/": [],
    }
    assert result.stats["walsh/address/denied"] == 4
    assert "Traceback" not in result.stderr


def test_headers_that_are_not_sent_are_named_once(web, run):
    """Of a project's own crawl that is the User-Agent alone."""
    urls = "http://me:s3cret@a.example/ http://a.example/2"
    result = run(web, spider="odd", urls=urls, **ADDON, **IDENTITY)
    lines = [line.partition("WARNING: ")[2] for line in warnings_of(result)]
    named = [re.search(r"the (\S+) header of (\S+):", line).groups() for line in lines]
    assert named == [("User-Agent", "http://…@a.example/")]
    assert "WALSH_USER_AGENT" in lines[-1]
    assert {hit.header("User-Agent") for hit in result.log} == {AGENT}
    pages = [hit for hit in result.log if hit.path != "/robots.txt"]
    assert {hit.header("Cookie") for hit in pages} == {"session=1"}
    assert {hit.header("Authorization") for hit in pages} == {"Bearer x"}


def warnings_of(result):
    return [line for line in result.stderr.splitlines() if "WARNING: " in line]


def test_a_cached_429_or_503_says_nothing_about_now(direct_web, run, tmp_path):
    busy = Reply("busy", 503, headers={"Retry-After": "60"})
    web = direct_web(Site("busy.example", "", {"/": busy, "/2": "x"}))
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    before = run(web, urls="http://busy.example/", RETRY_ENABLED=False, **cache)
    assert before.stats["httpcache/store"] == 1
    urls = "http://busy.example/ http://busy.example/2"
    result = run(web, urls=urls, **cache, **ADDON, **IDENTITY)
    assert paths(result.log) == ["busy.example/robots.txt", "busy.example/2"]
    assert "Ignoring response <503 http://busy.example/>" in result.stderr
    assert "walsh/backoff/retried" not in result.stats
    assert "giving up" not in result.stderr


# Requests of other projects' spiders: forms, download slots, deferral and cancellation.

SPIDERS = """
import asyncio
import sqlite3
from contextlib import closing
from scrapy import FormRequest, Request, signals

from tests.helpers.theirs import Urls


class Watchful(Urls):
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


class Gatherer(Urls):
    name = "gatherer"

    async def start(self):
        yield Request("http://h0.example/")

    async def parse(self, response):
        links = (f"http://h{number}.example/" for number in range(1, 9))
        await asyncio.gather(*map(self.asked, links))


class Uploader(Urls):
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


class Listed(Urls):
    name = "listed"


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


#: One request and one connection at a time, which only the handler of the add-on counts.
SERIAL = {**ADDON, **IDENTITY, **OUR_HANDLER, "WALSH_SERIAL": True}


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
    manners = {"user_agent": AGENT, "serial": False, "anonymous": False}
    manners["connections"] = served.connections
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
    assert rows_of(crawl, "SELECT max(in_flight_until) FROM hosts")[0] == (0.0,)

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
            stopped.append(started.get(timeout=HANG_SECONDS))
            stopped[0].terminate()
        return page(delay=0.5)

    first, *others = hosts
    web = direct_web(
        Site(first, "", {"/": page()}), *(Site(host, "", {"/": stop}) for host in others)
    )
    write_project(project, SERIAL, spiders=SPIDERS)
    running = crawl.start(web, "gatherer", project=project)
    started.put(running)
    result = running.wait()
    assert result.exit_code == 0
    polite(result, serial=True)
    assert len([hit for hit in result.log if hit.path == "/"]) == 2
    assert result.stderr.count(" was asked for: StillDue") == len(others) - 1


def test_a_deferred_redirect_is_kept_for_the_next_start(direct_web, crawl, project):
    headers = {"Location": "http://to.example/", "Retry-After": "90"}
    moved = Reply(status=302, headers=headers, content_type=None)
    web = direct_web(
        Site("from.example", "", {"/": [moved, page()]}), Site("to.example", "", {"/": page()})
    )
    settings = {"WALSH_MAX_WAIT": 60, "JOBDIR": project / "job"}
    arguments = {"urls": "http://from.example/"}
    given = {"project": project, "settings": settings, "arguments": arguments}
    first = crawl(web, "listed", **given)
    assert paths(first.log) == ["from.example/robots.txt", "from.example/"]
    assert first.stats["walsh/requests/deferred"] == 1
    rows_of(crawl, "UPDATE hosts SET hold_until = 0")
    assert paths(crawl(web, "listed", **given).log) == [], "the redirect asked for 90 s"
    with closing(sqlite3.connect(settings["JOBDIR"] / FILE)) as job, job:
        job.execute("UPDATE requests SET redirects = json_set(redirects, '$[1]', 0)")
    third = crawl(web, "listed", **given)
    assert paths(third.log) == ["to.example/robots.txt", "to.example/"]


def test_two_crawls_of_one_process_are_serial_together(direct_web, project, run_python):
    write_project(project, SERIAL, spiders=SPIDERS)
    hosts = ("a", "b", "c", "d")
    web = direct_web(*(Site(f"{host}.example", "", {"/": page(delay=0.3)}) for host in hosts))
    script = """
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings
process = CrawlerProcess(get_project_settings())
for urls in ("http://a.example/ http://b.example/", "http://c.example/ http://d.example/"):
    process.crawl("listed", urls=urls)
process.start()
"""
    done = run_python("-c", script, cwd=project, environment=web.environment)
    assert done.returncode == 0, done.stderr
    polite(web, serial=True)
    assert len([hit for hit in web.log if hit.path == "/"]) == 4, done.stderr


def test_a_failed_state_defers_what_waits_for_the_blocklist(direct_web, crawl, project):
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
    assert log_lines(result, "http://b.example/", "StateUnavailable")
    assert not {"a.example/", "b.example/"} & set(paths(result.log))
