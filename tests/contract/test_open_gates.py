"""Decisions 29 and 30: what other code in a project does opens no gate, and holds up no crawl.

The projects follow links with an identity of their own. Their middlewares do what is allowed in
Scrapy; the log of the servers says what came of it. That only a proxy of the environment is used is
a rule of declared crawls.
"""

import json

import pytest

from tests.helpers.sites import (
    ADDON,
    AGENT,
    IDENTITY,
    blamed_hosts,
    feed,
    log_lines,
    paths,
    rows_of,
    write_project,
)
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site, redirect

OURS = "walsh_scrapy.downloadermiddlewares"
GATES = {
    "blocklist": (f"{OURS}.blocklist.BlocklistMiddleware", 10),
    "privatehosts": (f"{OURS}.privatehosts.PrivateHostsMiddleware", 20),
    "robots": (f"{OURS}.robots.RobotsMiddleware", 100),
    "pacing": (f"{OURS}.pacing.PacingMiddleware", 890),
}
PRIVATE = "User-agent: *\nDisallow: /private\n"

SPIDERS = """
import asyncio

from scrapy import Request

from tests.helpers.theirs import Urls
from walsh_scrapy.spider import DeclaringSpider


class Pages(Urls):
    name = "pages"


class Gatherer(Urls):
    name = "gatherer"

    async def start(self):
        yield Request("http://hub.example/")

    async def parse(self, response):
        for item in await asyncio.gather(*map(self.asked, self.urls.split())):
            yield item


class Proxied(Urls, DeclaringSpider):
    name = "proxied"
    custom_settings = {"WALSH_SCOPE": "any"}

    def request(self, url):
        request = super().request(url)
        if "/brought" in url:
            request.meta["proxy"] = "http://victim.example:80"
        elif "/authorized" in url:
            request.headers["Proxy-Authorization"] = "Basic eDp5"
        return request


class Shifting(Request):
    reads, after = 0, 0

    @property
    def url(self):
        self.reads += 1
        return self._url if self.reads <= self.after else self._url.replace("open", "private")


class Shifty(Urls):
    name = "shifty"

    def request(self, url):
        request = Shifting(url, errback=self.ended, dont_filter=True)
        request.after = int(url.rpartition("/")[2])
        return request
"""

MIDDLEWARES = """
from typing import get_type_hints
from urllib.parse import urlsplit

from scrapy import Request
from scrapy.http import TextResponse


class Middleware:
    def __init__(self, crawler):
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)


class Proxies(Middleware):
    async def process_request(self, request):
        if f"/by{self.order}" in request.url:
            request.meta["proxy"] = "http://victim.example:80"


class Proxies500(Proxies):
    order = 500


class Proxies860(Proxies):
    order = 860


class Proxies950(Proxies):
    order = 950


class Rotating(Middleware):
    async def process_request(self, request):
        request.meta["proxy"] = "http://user:secret@proxy.example:8080"


class Hints(Middleware):
    async def process_request(self, request):
        get_type_hints(request.callback or self.crawler.spider.parse)


class Raising(Middleware):
    async def process_request(self, request):
        self.check(request, "in")

    async def process_response(self, request, response):
        self.check(request, "out")
        return response

    def check(self, request, way):
        robots = f"http://{way}.example/robots.txt"
        if request.url == robots or f"/raises-{way}" in request.url:
            raise ValueError(f"theirs, {way}")


class Replacing(Middleware):
    async def process_response(self, request, response):
        return response.replace(request=request.copy())


class Answering(Middleware):
    async def process_request(self, request):
        if "/answered" in request.url:
            return TextResponse(request.url, body=b"theirs", request=request)

    async def process_response(self, request, response):
        if "/raises" in request.url:
            raise ValueError("theirs")
        if "/again" in request.url:
            return Request(request.url.replace("again", "other"), errback=request.errback)
        return response


class Moving(Middleware):
    async def process_request(self, request):
        if f"/moved{self.order}" in request.url:
            request._set_url("http://a.example/private")


class Moving500(Moving):
    order = 500


class Moving950(Moving):
    order = 950


class Asking(Middleware):
    async def process_request(self, request):
        path = urlsplit(request.url).path
        if path.startswith("/page"):
            asked = Request(request.url.replace("/page", "/asked"))
            await self.crawler.engine.download_async(asked)


class RobotsAnew(Middleware):
    async def process_request(self, request):
        if request.url.endswith("/robots.txt") and request.headers.get("Accept") != b"theirs":
            return Request(request.url, headers={"Accept": "theirs"})


class BrokenGate:
    def __init__(self, crawler):
        from walsh_scrapy.downloadermiddlewares import identity, redirect

        part, method, url = crawler.settings["BROKEN"].split()
        kind = {"identity": identity.IdentityMiddleware, "redirect": redirect.RedirectMiddleware}
        whole = getattr(kind[part], method)

        def broken(middleware, request, **given):
            if request.url.endswith(url):
                raise ValueError("ours")
            return whole(middleware, request=request, **given)

        setattr(kind[part], method, broken)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)
"""


def page(text="<!doctype html>", **reply):
    return Reply(text, content_type="text/html", **reply)


@pytest.fixture
def run(crawl, tmp_path, installed):
    """Run a spider of the project with some of its middlewares, by their names, and orders."""

    def run_spider(web, *urls, spider="pages", theirs=(), gates=(), **settings):
        chain = {f"theirs.middlewares.{name}": order for name, order in theirs}
        alone = {"ADDONS": {}, "USER_AGENT": AGENT} if gates else ADDON
        chain |= dict(GATES[gate] for gate in gates)
        given = {**IDENTITY, **alone, "DOWNLOADER_MIDDLEWARES": chain, "RETRY_TIMES": 0}
        folder = tmp_path / "project"
        project = write_project(folder, given | settings, spiders=SPIDERS, middlewares=MIDDLEWARES)
        arguments = {"urls": " ".join(urls)}
        result = crawl(web, spider, project=project, arguments=arguments, timeout=60.0)
        taken = "in_flight_until > 0" if result.exit_code else "in_flight_until > 0 OR owner <> ''"
        assert rows_of(crawl, f"SELECT host FROM hosts WHERE {taken}") == []
        return result

    return run_spider


def polite(result, **terms):
    manners = {"user_agent": AGENT, "serial": False, "connections": result.connections}
    assert_polite(result.log, **manners | terms)


def ends(result):
    """How each request ended, by its path: None if its response came to the callback."""
    return {item["url"].partition(".example")[2]: item.get("trouble") for item in result.items}


@pytest.mark.parametrize("gates", [(), *((gate,) for gate in GATES)], ids="".join)
def test_a_proxy_comes_from_the_environment_only(direct_web, run, gates):
    orders = [500, 860, 950] if not gates else [860] if "pacing" in gates else []
    names = ["brought", *(f"by{order}" for order in orders)]
    pages = {f"/{name}": page() for name in [*names, "plain"]}
    web = direct_web(Site("a.example", "", pages), Site("victim.example", "", pages))
    result = run(
        web,
        *(f"http://a.example/{name}" for name in [*names, "plain"]),
        spider="proxied",
        theirs=[(f"Proxies{order}", order) for order in orders],
        gates=gates,
    )
    assert ends(result) == {f"/{name}": "Denied" for name in names} | {"/plain": None}
    assert set(paths(result.log)) <= {"a.example/robots.txt", "a.example/plain"}
    assert result.stats["walsh/address/denied"] == len(names)
    for name in names:
        lines = [line for line in result.stderr.splitlines() if f"/{name} is denied by" in line]
        assert len(lines) == 1


@pytest.mark.parametrize("order", [50, 610, 950])
def test_a_middleware_that_names_proxies_gets_one_warning(direct_web, run, order):
    web = direct_web(Site("a.example", "", {"/1": page(), "/2": page()}))
    urls = ("http://a.example/1", "http://a.example/2")
    result = run(web, *urls, spider="proxied", theirs=[("Rotating", order)])
    assert ends(result) == {"/1": "Denied", "/2": "Denied"}
    (warning,) = [line for line in result.stderr.splitlines() if " WARNING: " in line]
    assert "http_proxy" in warning
    assert "secret" not in result.stderr
    assert result.stats["walsh/address/denied"] >= 2
    assert "walsh/robots/denied" not in result.stats
    assert result.log == []


def test_the_proxy_of_the_environment_is_carried_along(loopback_web, run):
    pages = {"/old": redirect("/new"), "/new": page(), "/broken": [page(status=500), page()]}
    web = loopback_web(Site("a.example", "", pages | {"/authorized": page()}))
    urls = [f"http://a.example/{name}" for name in ("old", "broken", "authorized")]
    result = run(web, *urls, spider="proxied", RETRY_TIMES=1)
    assert ends(result) == {"/new": None, "/broken": None, "/authorized": None}
    polite(result, serial=True)  # no Proxy-Authorization either


def test_type_hints_of_callbacks_open_no_robots_txt(direct_web, run):
    web = direct_web(Site("a.example", PRIVATE, {"/": page(), "/private": page()}))
    urls = ("http://a.example/", "http://a.example/private")
    result = run(web, *urls, theirs=[("Hints", 560)])
    assert paths(result.log) == ["a.example/robots.txt", "a.example/"]
    assert ends(result) == {"/": None, "/private": "Denied"}


@pytest.mark.parametrize("order", [500, 900])
def test_exceptions_of_a_project_are_no_answers(direct_web, run, crawl, order):
    pages = {"/": page(), "/raises-in": page(), "/raises-out": page(), "/last": page()}
    hosts = ("in", "out", "a")
    web = direct_web(*(Site(f"{host}.example", PRIVATE, pages) for host in hosts))
    urls = [f"http://{host}.example/" for host in ("in", "out")]
    urls += [f"http://a.example{path}" for path in pages]
    result = run(web, *urls, theirs=[("Raising", order)])
    assert result.exit_code == 0
    assert sorted(set(paths(result.log))) == [
        "a.example/",
        "a.example/last",
        "a.example/raises-out",
        "a.example/robots.txt",
        "out.example/",
        "out.example/robots.txt",
    ]
    assert {item["url"]: item.get("trouble") for item in result.items} == {
        "http://in.example/": "Denied",
        "http://out.example/": None,
        "http://a.example/": None,
        "http://a.example/raises-in": "ValueError",
        "http://a.example/raises-out": "ValueError",
        "http://a.example/last": None,
    }
    assert len(log_lines(result, "WARNING", "http://in.example/robots.txt", "ValueError")) == 1
    polite(result)
    assert blamed_hosts(crawl) == []
    assert not rows_of(crawl, "SELECT * FROM robots WHERE origin LIKE 'http://%in.example'")


@pytest.mark.parametrize(
    "broken",
    ["identity process_request /robots.txt", "identity process_request /1",
     "redirect process_response /robots.txt", "redirect process_response /1"],
)  # fmt: skip
def test_an_exception_of_our_own_ends_the_run(direct_web, run, crawl, broken):
    pages = {f"/{number}": page() for number in range(1, 4)}
    web = direct_web(Site("a.example", "", pages))
    result = run(
        web,
        *(f"http://a.example{path}" for path in pages),
        EXTENSIONS={"theirs.middlewares.BrokenGate": 0},
        BROKEN=broken,
    )
    assert result.exit_code == 1
    assert result.stats["finish_reason"] == "gate_failed"
    (line,) = [line for line in result.stderr.splitlines() if " CRITICAL: " in line]
    assert "ValueError('ours')" in line
    assert {"a.example/2", "a.example/3"}.isdisjoint(paths(result.log))
    assert blamed_hosts(crawl) == []


def test_middlewares_that_hide_a_response_block_no_request(direct_web, run):
    pages = {f"/{name}": page() for name in ("raises", "answered", "again", "other", "last")}
    busy = page(status=429, headers={"Retry-After": "3"})
    web = direct_web(
        Site("a.example", "", pages), Site("b.example", "", {"/raises": busy, "/b": page()})
    )
    urls = [f"http://a.example/{name}" for name in ("raises", "answered", "again", "last")]
    urls += ["http://b.example/raises", "http://b.example/b"]
    result = run(web, *urls, theirs=[("Replacing", 50), ("Answering", 900), ("Replacing", 400)])
    assert ends(result) == {
        "/raises": "ValueError",
        "/answered": None,
        "/other": None,
        "/last": None,
        "/b": None,
    }
    polite(result)


@pytest.mark.parametrize("serial", [True, False])
def test_a_hidden_end_holds_up_no_request_past_the_scheduler(direct_web, run, serial):
    pages = {"/": page(), "/raises": page(), "/1": page(), "/2": page()}
    hosts = ("hub", "a", "b")
    web = direct_web(*(Site(f"{host}.example", "", pages) for host in hosts))
    urls = [f"http://{host}.example/{name}" for host in "ab" for name in ("raises", 1, 2)]
    result = run(web, *urls, spider="gatherer", theirs=[("Answering", 900)], WALSH_SERIAL=serial)
    assert [item.get("trouble") for item in result.items] == ["ValueError", None, None] * 2
    polite(result, serial=serial, connections=())  # these are of Scrapy's handler


def test_a_middleware_may_ask_the_same_host_first(direct_web, run):
    numbers = range(3)
    pages = {f"/{name}{n}": page() for name in ("page", "asked") for n in numbers}
    web = direct_web(Site("a.example", "", pages), Site("b.example", "", pages))
    urls = [f"http://{host}.example/page{n}" for host in "ab" for n in numbers]
    result = run(web, *urls, theirs=[("Asking", 500), ("RobotsAnew", 400)])
    assert len(result.items) == len(urls)
    polite(result)


def test_what_is_judged_is_what_is_sent(direct_web, run):
    names = [f"/open/{number}" for number in (*range(30), *range(30, 120, 9))]
    private = {name.replace("open", "private"): page() for name in names}
    moved = {f"/moved{order}": page() for order in (500, 950)}
    pages = dict.fromkeys(names, page()) | private | moved | {"/private": page(), "/": page()}
    web = direct_web(Site("a.example", PRIVATE, pages), Site("b.example", "", pages))
    result = run(
        web,
        *(f"http://a.example{name}" for name in names),
        spider="shifty",
        WALSH_MIN_INTERVAL=1,
    )
    assert not [path for path in paths(result.log) if "private" in path]
    result = run(
        web,
        *(f"http://b.example{name}" for name in [*moved, "/"]),
        "http://%5bno-host/",
        theirs=[(f"Moving{order}", order) for order in (500, 950)],
    )
    assert paths(result.log) == ["b.example/robots.txt", "b.example/"]
    assert result.stats["walsh/address/denied"] == 2
    assert json.dumps(result.items).count("Denied") == 3


# A spider's own errback is called, whatever it is, and the visit still ends once in the record.

SPIDER = '''
from scrapy.downloadermiddlewares.retry import get_retry_request
from spiders.feeds import FeedsSpider
from walsh_scrapy.feeds.items import EntryItem


class OwnSpider(FeedsSpider):
    """Gives each source the errback that is its name."""

    name = "own"
    custom_settings = {"SPIDER_MODULES": ["spiders"]}

    def first_request(self, source, url):
        request = super().first_request(source, url)
        request.errback = getattr(self, source.name)
        return request

    async def parse(self, response, source):
        if response.text == "later":
            yield get_retry_request(response.request, spider=self, reason="later")
        else:
            async for item in super().parse(response, source):
                yield item

    def once_more(self, failure):
        source = failure.request.cb_kwargs["source"]
        return self.request(source, source.url, self.accept, self.readable)

    def called(self, failure):
        self.crawler.stats.inc_value(f"called/{failure.request.url}")

    def nothing(self, failure):
        self.called(failure)

    def raises(self, failure):
        self.called(failure)
        raise ZeroDivisionError("the errback failed")

    def hands_it_back(self, failure):
        self.called(failure)
        return failure

    def traps(self, failure):
        self.called(failure)
        failure.trap(ZeroDivisionError)

    async def hands_it_back_later(self, failure):
        self.called(failure)
        return failure

    def a_request(self, failure):
        self.called(failure)
        return self.once_more(failure)

    async def a_coroutine(self, failure):
        self.called(failure)
        return [self.once_more(failure)]

    async def an_async_generator(self, failure):
        self.called(failure)
        yield self.once_more(failure)

    def a_copy(self, failure):
        self.called(failure)
        if "copied" not in failure.request.meta:
            copy = failure.request.replace(dont_filter=True)
            copy.meta["copied"] = True
            yield copy

    def the_same(self, failure):
        self.called(failure)
        if "sent_again" not in failure.request.meta:
            failure.request.meta["sent_again"] = True
            yield failure.request

    def an_item(self, failure):
        self.called(failure)
        yield {"body": failure.request.url}
        yield EntryItem(kind="feed", source=failure.request.url, url="http://a.example/")
'''
GONE_WRONG = {
    "http": Reply(status=404),  # passes the spider middlewares, as HttpError
    "circle": redirect("/feed"),  # does not: it ends in a downloader middleware
}
ENDS = ["nothing", "raises", "hands_it_back", "traps", "hands_it_back_later"]
GOES_ON = ["a_request", "a_coroutine", "an_async_generator"]
AGAIN = ["a_copy", "the_same"]


@pytest.fixture
def run_of_own_errbacks(simulated, tmp_path, project_with):
    """Run the spider on hosts given as (errback, answers); return the result and the record."""

    def run_spider(hosts):
        (result,) = simulated(
            *(Site(host, "", {"/feed": page}) for host, (_, page) in hosts.items()),
            spider="own",
            sources=[
                {"url": f"http://{host}/feed", "name": errback}
                for host, (errback, _) in hosts.items()
            ],
            project=project_with(SPIDER),
        )
        assert_polite(result.log)
        rows = rows_of(tmp_path / "simulation", "SELECT url, outcome, failures FROM sources")
        record = {url.split("/")[2]: (outcome, failures) for url, outcome, failures in rows}
        called = {
            name.split("/")[3]: count
            for name, count in result.stats.items()
            if name.startswith("called/")
        }
        return result, record, called

    return run_spider


def host_of(errback, wrong, then=""):
    return f"{errback}-{wrong}{then}.example".replace("_", "-")


def test_a_visit_ends_once_whatever_the_errback_returns(run_of_own_errbacks):
    hosts = {
        host_of(errback, wrong): (errback, answer)
        for errback in ENDS
        for wrong, answer in GONE_WRONG.items()
    }
    result, record, called = run_of_own_errbacks(hosts)
    assert called == dict.fromkeys(hosts, 1)
    assert record == dict.fromkeys(hosts, ("failed", 1))
    assert result.stats["walsh/sources/failed"] == len(hosts)
    # Only what an errback raises itself is its error; a failure that it hands back is no new one.
    assert result.stats["spider_exceptions/count"] == 2
    assert result.stats["spider_exceptions/ZeroDivisionError"] == 2


def test_a_visit_goes_on_with_the_request_of_its_errback(run_of_own_errbacks):
    hosts = {}
    for errback in [*GOES_ON, *AGAIN]:
        for wrong, answer in GONE_WRONG.items():
            well = host_of(errback, wrong, "-well")
            hosts[well] = (errback, [answer, feed(host=well)])
            hosts[host_of(errback, wrong, "-ill")] = (errback, [answer, Reply(status=404)])
    result, record, called = run_of_own_errbacks(hosts)
    ill = {host for host in hosts if host.endswith("-ill.example")}
    assert record == {host: ("failed", 1) if host in ill else ("fetched", 0) for host in hosts}
    assert result.stats["walsh/sources/failed"] == len(ill)
    assert result.stats["walsh/sources/fetched"] == len(hosts) - len(ill)
    assert len(result.items) == 2 * (len(hosts) - len(ill))
    keeps_errback = {host for host in ill if host.startswith(("a-copy", "the-same"))}
    assert called == {host: 2 if host in keeps_errback else 1 for host in hosts}
    assert "spider_exceptions/count" not in result.stats


def test_what_is_no_metadata_leaves_from_no_errback(run_of_own_errbacks):
    hosts = {host_of("an_item", wrong): ("an_item", page) for wrong, page in GONE_WRONG.items()}
    result, record, called = run_of_own_errbacks(hosts)
    assert result.items == []
    assert called == dict.fromkeys(hosts, 1)
    assert record == dict.fromkeys(hosts, ("failed", 1))
    assert result.stderr.count("dropped an item") == 4


def test_a_request_made_again_by_its_callback_ends_once(run_of_own_errbacks):
    hosts = {"again.example": ("nothing", [Reply("later"), Reply(status=404)])}
    result, record, called = run_of_own_errbacks(hosts)
    assert called == {"again.example": 1}
    assert record == {"again.example": ("failed", 1)}
    assert result.stats["walsh/sources/failed"] == 1
