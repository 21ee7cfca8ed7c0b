"""Decisions 30 and 32: what a spider or a middleware says of a request opens no gate."""

import gzip

import pytest

from tests.helpers.sites import feed, judge, log_lines, paths, refusal, site, write_project
from walsh_scrapy import identity
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.web import Reply, Site, redirect

SETTINGS = f"""
WALSH_USER_AGENT = "{identity.USER_AGENT}"
SPIDER_MODULES = ["theirs.spiders"]
ADDONS = {{"walsh_scrapy.Addon": 500}}
DOWNLOADER_MIDDLEWARES = {{f"theirs.claims.At{{order}}": order for order in (50, 500, 950)}}
WALSH_SOURCES = "sources.txt"
"""
CLAIMS = """
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.crawl.ticket import Hop, Ticket, Validators

DECLARED = "http://blog.example/feed"


def claims():
    ticket = Ticket(rank=Rank.ROBOTS, hops=(Hop(DECLARED, 301),), released=True)
    return {
        "walsh_rank": Rank.ROBOTS,
        "walsh_marks": ticket,
        "walsh_ticket": ticket,
        "redirect_urls": [DECLARED],
        "redirect_reasons": [301],
    }


class At50:
    async def process_request(self, request):
        request.meta.update({key: claims()[key] for key in ("walsh_rank", "redirect_urls")})


class At500(At50):
    pass


class At950(At50):
    async def process_request(self, request):
        await super().process_request(request)
        request.headers["User-Agent"] = "Mozilla/5.0 (nobody)"
        request.headers["Cookie"] = "seen=1"
        request.headers["Referer"] = "http://elsewhere.example/"
        request.headers["Authorization"] = "Basic eDp5"
        request.headers["Host"] = "inner.example"
        request.headers["If-None-Match"] = '"theirs"'
        if request.url == "http://swapped.example/feed":
            request._set_url("http://swapped.example/private/feed")
"""
SPIDERS = """
from scrapy import Request
from spiders.feeds import FeedsSpider
from theirs.claims import claims


class Claimer(FeedsSpider):
    name = "claimer"

    async def start(self):
        yield Request("http://blog.example/undeclared", meta=claims())
        yield Request("http://barred.example/private/feed", meta=claims(), callback=self.seen)
        async for request in super().start():
            request.headers["Host"] = "inner.example"
            request.headers["Cookie"] = "a=b"
            request.meta.update(download_maxsize=0, download_timeout=9999)
            yield request

    async def parse(self, response, source):
        if response.url == "http://new.example/feed":
            meta = response.meta
            await self.asked("http://new.example/asked", meta)
            await self.asked(response.url, meta)
            yield Request("http://new.example/more", meta=meta, callback=self.seen)
            yield Request(response.url, meta=meta, dont_filter=True, callback=self.seen)
            yield response.request.replace(url="http://new.example/replaced")
        async for item in super().parse(response, source):
            yield item

    async def asked(self, url, meta):
        try:
            await self.crawler.engine.download_async(Request(url, meta=meta))
        except Exception as error:
            self.logger.info("asked: %r", error)

    def seen(self, response):
        self.logger.error("%s was fetched", response.url)


class Again(FeedsSpider):
    name = "again"

    async def start(self):
        for source in self.sources:
            request = self.first_request(source, source.url)
            request.meta.update(redirect_urls=[source.url, source.url])
            yield request
            yield request.replace(meta=claims(), errback=self.seen)

    def seen(self, failure):
        self.logger.info("%s without a visit: %r", failure.request.url, failure.value)
"""
GZIP = {"Content-Encoding": "gzip"}
PRIVATE = "User-agent: *\nDisallow: /private/\n"


#: Each gate once more by its class and set to None, and every other way round that was found.
WITHOUT_GATES = """
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware
from theirs.again import Handler, Robots
from walsh_scrapy import identity
from walsh_scrapy.crawl.startup import SPIDER_GATES, Gate, Kind
from scrapy.utils.misc import load_object

SPIDER_GATES = SPIDER_GATES[Kind.DECLARED]
WALSH_USER_AGENT = identity.USER_AGENT
SPIDER_MODULES = ["spiders"]
ADDONS = {"walsh_scrapy.Addon": 500}
gates = {gate.path: gate.order for gate in Gate} | {load_object(gate.path): None for gate in Gate}
DOWNLOADER_MIDDLEWARES = gates | {"theirs.again.Robots": None, RedirectMiddleware: 601}
SPIDER_MIDDLEWARES = SPIDER_GATES | {load_object(path): None for path in SPIDER_GATES}
DOWNLOAD_HANDLERS = {"http": Handler, "HTTP": Handler, "gopher": Handler}
DOWNLOADER = "theirs.again.Downloader"
SCHEDULER = "scrapy.core.scheduler.Scheduler"
COMPRESSION_ENABLED = False
"""
AGAIN = """
from scrapy.core.downloader import Downloader as ScrapyDownloader
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler as Handler
from walsh_scrapy.downloadermiddlewares.robots import RobotsMiddleware as Robots


class Downloader(ScrapyDownloader):
    async def fetch(self, request):
        raise AssertionError("another downloader")


class LateAddon:
    def update_settings(self, settings):
        settings["DOWNLOADER_MIDDLEWARES"].set(Robots, None)
"""


@pytest.fixture
def project(tmp_path, installed):
    modules = {"claims": CLAIMS, "spiders": SPIDERS, "again": AGAIN}
    return write_project(tmp_path / "project", SETTINGS, **modules)


def test_claims_of_spiders_and_middlewares_open_no_gate(direct_web, crawl, project):
    web = direct_web(
        site("blog.example", undeclared=feed()),
        site("old.example", feed=redirect("http://new.example/feed", 302)),
        site("new.example", more=feed(), asked=feed(), replaced=feed()),
        Site("barred.example", PRIVATE, {"/private/feed": feed()}),
        Site("swapped.example", PRIVATE, {"/feed": feed(), "/private/feed": feed()}),
        site("inner.example"),
        site("large.example", feed=Reply(gzip.compress(b" " * 99_999), headers=GZIP)),
        site("slow.example", feed=feed(delay=60.0)),
    )
    hosts = ("blog", "old", "swapped", "large", "slow")
    sources = [f"http://{host}.example/feed" for host in hosts]
    sources.append("http://barred.example/private/feed")
    listed = write_sources(project / "sources.txt", sources)
    limits = {"DOWNLOAD_MAXSIZE": 60_000, "DOWNLOAD_TIMEOUT": 3, "RETRY_TIMES": 0}
    result = crawl(web, "claimer", project=project, settings=limits | {"WALSH_SOURCES": listed})
    judge(result, declared=sources, denied=["http://barred.example/private/feed"])
    assert sorted(paths(result.log)) == [
        "barred.example/robots.txt",
        "blog.example/feed",
        "blog.example/robots.txt",
        "large.example/feed",
        "large.example/robots.txt",
        "new.example/feed",
        "new.example/robots.txt",
        "old.example/feed",
        "old.example/robots.txt",
        "slow.example/feed",
        "slow.example/robots.txt",
        "swapped.example/robots.txt",
    ]
    for hit in result.log:
        assert hit.header("User-Agent") == identity.USER_AGENT
        assert hit.header("Host") == hit.host
        sent = {"Cookie", "Referer", "Authorization", "If-None-Match"}
        assert {name for name in sent if hit.header(name) is not None} == set()
    assert result.stats["walsh/sources/fetched"] == 2
    assert log_lines(result, "http://slow.example/feed", "3.0 seconds")
    assert log_lines(result, "large.example", "58.6 KiB")
    assert "swapped.example/private/feed> is not recorded" in result.stderr
    assert "Traceback" not in result.stderr

    again = crawl(web, "again", project=project, settings={"WALSH_SOURCES": listed})
    assert again.stats["walsh/sources/not_due"] == 4, "whatever redirects are claimed"
    assert log_lines(again, "http://blog.example/feed", "NotDue")
    assert again.log == []


def test_dot_segments_hide_no_path_from_robots_txt(direct_web, crawl):
    hops = ["/a/../private/1", "/./private/2", "/%2e%2e/private/3", "/a/%2E./private/4"]
    away = {f"/{n}": redirect(f"http://dots.example{path}") for n, path in enumerate(hops)}
    private = {f"/private/{n}": feed() for n in range(1, 7)}
    web = direct_web(
        Site("dots.example", PRIVATE, private | {"/public/feed": feed()}),
        Site("hops.example", "", away | {"/ok": redirect("http://dots.example/x/../public/feed")}),
        Site(
            "rules.example",
            redirect("http://rules.example/x/%2e%2e/r.txt"),
            {"/r.txt": Reply(PRIVATE), "/private/feed": feed(), "/feed": feed()},
        ),
    )
    sources = [
        "http://dots.example/a/../private/5",
        "http://dots.example/x/%2e%2E/private/6",
        *(f"http://hops.example/{n}" for n in range(len(hops))),
        "http://hops.example/ok",
        "http://rules.example/./private/feed",
        "http://rules.example/x/%2e./feed",
    ]
    result = crawl(web, sources=sources)
    assert result.exit_code == 0
    assert result.stats["walsh/sources/denied/robots"] == 7
    assert sorted(set(paths(result.log)) - {f"hops.example/{n}" for n in range(len(hops))}) == [
        "dots.example/public/feed",
        "dots.example/robots.txt",
        "hops.example/ok",
        "hops.example/robots.txt",
        "rules.example/feed",
        "rules.example/r.txt",
        "rules.example/robots.txt",
    ]
    judge(result)


def test_a_gate_has_one_name_and_stays(direct_web, crawl, project):
    (project / "theirs" / "settings.py").write_text(WITHOUT_GATES)
    packed = Reply(gzip.compress(PRIVATE.encode()), headers={"Content-Encoding": "gzip"})
    web = direct_web(
        Site("blog.example", packed, {"/private/feed": feed(), "/feed": feed()}),
        site("away.example", feed=redirect("http://blog.example/private/2")),
    )
    urls = ("blog.example/private/feed", "blog.example/feed", "away.example/feed")
    sources = [f"http://{url}" for url in urls]
    result = crawl(web, project=project, sources=sources)
    assert result.exit_code == 0, result.stderr
    judge(result, declared=sources)
    assert sorted(paths(result.log)) == [
        "away.example/feed",
        "away.example/robots.txt",
        "blog.example/feed",
        "blog.example/robots.txt",
    ]
    assert result.stats["walsh/sources/denied/robots"] == 2
    for name in (
        "multiple keys that refer to the same object: walsh_scrapy.downloadermiddlewares.robots",
        "DOWNLOADER = ",
        "COMPRESSION_ENABLED = ",
        "DOWNLOAD_HANDLERS['gopher'] = ",
    ):
        assert name in result.stderr, "what is set aside is named"

    (project / "theirs" / "settings.py").write_text(
        SETTINGS.replace("}\n", ', "theirs.again.LateAddon": 900}\n', 1)
    )
    refused = crawl(web, "again", project=project, sources=sources)
    assert "must be there once" in refusal(refused)


# The gates hold whatever a spider does. Spiders run in a copy of the project.

SPIDER = """
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.metadata.llmstxt import parse_llms
from walsh_scrapy.feeds.sourcesspider import SourcesSpider


class OwnSpider(SourcesSpider):
    name = "own"
    kind = "feed"
    accept = "*/*"
    custom_settings = {"USER_AGENT": "own", "CONCURRENT_REQUESTS": 8, "ROBOTSTXT_OBEY": False}

"""
BODIES = {
    "yields_a_body": """
    def parse(self, response, source):
        yield {"body": response.text}
""",
    "raises": """
    def parse(self, response, source):
        raise RuntimeError("reading failed")
""",
    "follows_links": """
    def parse(self, response, source):
        yield response.follow("/secret", self.parse, cb_kwargs={"source": source})
        yield Request("http://other.example/feed", self.parse, meta=response.meta)
        yield response.follow("/feed", method="POST", dont_filter=True)
""",
    "yields_and_goes_on": """
    kind = "llms"

    def parse(self, response, source, last=False):
        if not last:
            yield self.request(source, response.urljoin("/llms.txt"), "*/*", bool, last=True)
        feed = parse_llms(
            response.body, url=response.url, content_type=None, source=source.url
        )
        yield feed
        for entry in feed.entries:
            yield EntryItem.from_entry(entry, feed=feed, source=source.url, kind="llms")
        for number in range(9):
            yield EntryItem(kind="llms", source=source.url, title="x" * 301, section=str(number))
""",
    "asks_the_engine": """
    async def parse(self, response, source):
        for url in ("http://blog.example/secret", "http://other.example/feed"):
            try:
                answer = await self.crawler.engine.download_async(Request(url))
                self.logger.error("GOT %s", answer)
            except IgnoreRequest as denied:
                self.logger.warning("denied: %s", denied)
        self.crawler.engine.crawl(Request("http://other.example/feed"))
        return []
""",
}


BLOG = "http://blog.example/feed"


@pytest.fixture
def run(simulated, project_with):
    """Run an additional spider, beside those of the project, in simulated time."""

    def run_spider(name, source=BLOG, **options):
        return simulated(
            site("blog.example"),
            Site("docs.example", "", {f"/{path}": markdown(path) for path in ("home", "llms.txt")}),
            spider="own",
            sources=[source],
            project=project_with(SPIDER + BODIES[name]),
            **options,
        )

    return run_spider


def markdown(path):
    links = "\n".join(f"- [{path} {number}](/{path}/{number})" for number in range(3))
    return Reply(f"# Docs\n\n{links}\n", content_type="text/markdown")


def test_no_item_leaves_that_is_more_than_metadata(run):
    (result,) = run("yields_a_body")
    assert result.items == []
    assert "dropped an item" in result.stderr


def test_items_of_every_document_of_a_visit_are_kept(run):
    home = {"url": "http://docs.example/home", "kind": "llms"}
    again = {"force": "1"}
    result, second = run("yields_and_goes_on", home, starts=[0.0, 60.0], arguments=again)
    urls = [
        f"http://docs.example/{path}/{number}"
        for path in ("home", "llms.txt")
        for number in range(3)
    ]
    assert [item["url"] for item in result.items] == urls
    assert result.stats["walsh/entries/new"] == 6
    assert result.stats["walsh/sources/fetched"] == 1
    assert result.stderr.count("dropped an item: ") == 6, "three of each document"
    assert log_lines(result, "6 more items", "http://docs.example/home")
    assert (second.items, second.stats["walsh/entries/known"]) == ([], 6)


def test_an_error_of_a_spider_is_logged_and_fails_its_source(run):
    (result,) = run("raises")
    assert result.stats["walsh/sources/failed"] == 1
    assert log_lines(result, f"{BLOG} failed", "RuntimeError")


@pytest.mark.parametrize(
    ("name", "end"), [("follows_links", "dropped"), ("asks_the_engine", "denied")]
)
def test_no_undeclared_url_is_requested_in_any_way(direct_web, crawl, project_with, name, end):
    web = direct_web(
        site("blog.example", "User-agent: *\nDisallow: /secret\n"), site("other.example")
    )
    project = project_with(SPIDER + BODIES[name])
    result = crawl(web, "own", sources=[BLOG], project=project)
    assert result.stats[f"walsh/scope/{end}"] == 3
    assert result.exit_code == 0
    assert paths(result.log) == ["blog.example/robots.txt", "blog.example/feed"]
    assert "GOT" not in result.stderr
    judge(result)
