"""Each gate in a project that has neither the add-on nor our scheduler, judged by the servers' log.

The project is another bot's: its spider follows every link, sixteen requests at once. Without the
add-on Scrapy's own handler connects, so its connections are not judged.
"""

import gzip

import pytest

from tests.helpers.sites import (
    ADDON,
    AGENT,
    IDENTITY,
    LIST_URL,
    OUR_HANDLER,
    blocklist,
    log_lines,
    paths,
    write_project,
)
from walsh_scrapy.testing.hit import most_at_once
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect

OURS = "walsh_scrapy.downloadermiddlewares"
GATES = {
    "blocklist": (f"{OURS}.blocklist.BlocklistMiddleware", 10),
    "privatehosts": (f"{OURS}.privatehosts.PrivateHostsMiddleware", 20),
    "robots": (f"{OURS}.robots.RobotsMiddleware", 100),
    "backoff": (f"{OURS}.backoff.BackoffMiddleware", 549),
    "redirect": (f"{OURS}.redirect.RedirectMiddleware", 600),
    "identity": (f"{OURS}.identity.IdentityMiddleware", 860),
    "pacing": (f"{OURS}.pacing.PacingMiddleware", 890),
}
UNPACKING = (
    ("scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware", None),
    (f"{OURS}.compression.CompressionMiddleware", 590),
)
WITHOUT_BUSY = [500, 502, 504, 522, 524, 408]
DAY = 86_400.0

SPIDER = """
import asyncio
from scrapy import Request, signals
from tests.helpers.theirs import Urls
from walsh_scrapy.exceptions import Denied


class Follower(Urls):
    name = "follower"

    def parse(self, response):
        yield {"url": response.url}
        for link in response.css("a"):
            yield response.follow(link, errback=self.ended)

    def ended(self, failure):
        self.logger.info("%s ended: %s", failure.request.url, failure.value)


class NightMiddleware:
    async def process_request(self, request):
        if "night" in request.url:
            raise Denied("night", "closed until six")


class Asker(Follower):
    name = "asker"
    early = {}

    @classmethod
    def from_crawler(cls, crawler, **arguments):
        spider = super().from_crawler(crawler, **arguments)
        crawler.signals.connect(spider.is_out, signal=signals.request_reached_downloader)
        return spider

    def is_out(self, request):
        link = request.url.replace("robots.txt", "early")
        if link.endswith(".mixed.example/early") and link not in self.early:
            self.early[link] = asyncio.ensure_future(self.asked(link))

    async def parse(self, response):
        if "mixed" in response.url:
            return [await self.early[response.urljoin("/early")]]
        return await self.parse_hub(response)

    async def parse_hub(self, response):
        links = [response.urljoin(href) for href in response.css("a::attr(href)").getall()]
        items = await asyncio.gather(*map(self.asked, links))
        again = [Request(link + "?again", self.read, errback=self.ended) for link in links]
        return [*items, *again]

    def read(self, response):
        yield {"url": response.url}
"""


def page(*links, **reply):
    body = "".join(f'<a href="{link}">{link}</a>' for link in links)
    return Reply(f"<!doctype html>{body}", content_type="text/html", **reply)


def busy(seconds, status=429):
    return Reply(status=status, headers={"Retry-After": str(seconds)})


@pytest.fixture
def run(crawl, tmp_path, installed):
    """Run a spider of another bot's project with some of our gates, and nothing else of ours."""

    def run_spider(web, *gates, urls, spider="follower", **settings):
        chain = dict(GATES[gate] if isinstance(gate, str) else gate for gate in gates)
        given = {
            **IDENTITY,
            "USER_AGENT": AGENT,
            "WALSH_SERIAL": False,
            "REFERER_ENABLED": False,
            "DOWNLOAD_TIMEOUT": 30,
            "DOWNLOADER_MIDDLEWARES": chain,
        } | settings
        project = write_project(tmp_path / "project", given, spiders=SPIDER)
        wins = {name: settings[name] for name in settings if name.startswith("WALSH_BLOCKLIST")}
        return crawl(
            web, spider, project=project, arguments={"urls": " ".join(urls)}, settings=wins
        )

    return run_spider


def polite(log, **terms):
    manners = {"serial": False, "robots_first": False, "user_agent": AGENT}
    assert_polite(log, **manners | terms)


@pytest.mark.parametrize("serial", [True, False])
def test_pacing(direct_web, run, serial):
    pages = {"/1": page(delay=1.0), "/2": [busy(3), page()], "/3": page(), "/4": page()}
    web = direct_web(
        Site("a.example", pages=pages),
        Site("b.example", pages={"/": page("/x", "/y", delay=1.0), "/x": page(), "/y": page()}),
        Site("far.example", pages={"/1": busy(3600, 503), "/2": page()}),
        Site("held.example", pages={"/": busy(300)}),
    )
    numbered = [f"http://a.example/{n}" for n in range(1, 5)]
    far = ["http://far.example/1", "http://far.example/2"]
    result = run(
        web,
        "pacing",
        urls=[*numbered, "http://b.example/", *far, "http://held.example/"],
        WALSH_SERIAL=serial,
        CLOSESPIDER_ITEMCOUNT=7,
    )
    assert result.exit_code == 0
    polite(result.log, serial=serial)
    in_flight = most_at_once((hit.started, hit.ended) for hit in result.log)
    assert (in_flight > 1) is not serial
    first = list(dict.fromkeys(paths(result.log, "a.example")))
    assert first == ["a.example/1", "a.example/2", "a.example/3", "a.example/4"], "in their order"
    assert len(result.items) == 7
    assert paths(result.log, "far.example") == ["far.example/1"]
    assert result.stats["walsh/pacing/deferred"] == 3, "the last by the end of the crawl"
    assert len(paths(result.log, "held.example")) == 1, "a spider that closes waits for no turn"


def test_backoff(direct_web, run):
    web = direct_web(
        Site("a.example", pages={"/1": [busy(2), page()], "/2": page(), "/3": page()}),
        Site("slow.example", pages={"/1": [busy(2, 500), page()], "/2": page()}),
        Site("down.example", pages={"/": Reply(status=503)}),
        Site("never.example", pages={f"/{n}": Reply(status=503) for n in range(1, 6)}),
        Site("far.example", pages={"/1": busy(3600), "/2": page(), "/3": page()}),
    )
    counts = {"a": 3, "slow": 2, "far": 3, "never": 5}
    urls = [f"http://{host}.example/{n}" for host in counts for n in range(1, counts[host] + 1)]
    result = run(
        web,
        "pacing",
        "backoff",
        urls=[*urls, "http://down.example/"],
        RETRY_HTTP_CODES=WITHOUT_BUSY,
        WALSH_BACKOFF_BASE=1.2,
        WALSH_MAX_RETRIES=2,
    )
    assert result.exit_code == 0
    polite(result.log, backoff=1.2, max_retries=2)
    assert len(paths(result.log, "down.example")) == 3
    assert len(paths(result.log, "never.example")) == 3, "one share of tries for all its URLs"
    failed, *later = [hit for hit in result.log if hit.host == "slow.example"]
    assert min(hit.started for hit in later) - failed.ended >= 2.0, "Scrapy's retry waits as well"
    assert paths(result.log, "far.example") == ["far.example/1"]
    assert result.stats["walsh/pacing/deferred"] == 3
    assert log_lines(result, "http://a.example/1", "429", " 2 s")
    assert len(result.items) == 5


@pytest.mark.parametrize(("at_once", "unpacking"), [(1, ()), (16, UNPACKING)], ids=["1", "16"])
def test_robots(direct_web, run, at_once, unpacking):
    """Scrapy's own unpacking refuses a bomb, which opens nothing; of ours 500 KiB count."""
    rules = gzip.compress(b"User-agent: *\nDisallow: /\n" + b"#" * 2_000_000)
    bomb = Reply(rules, headers={"Content-Encoding": "gzip"})
    links = [f"/{n}" for n in range(1, 7)]
    closed = "User-agent: Example-Bot\nDisallow: /secret\nDisallow: /3\n"
    web = direct_web(
        Site("a.example", closed, {"/": page("/secret"), **dict.fromkeys(links, page())}),
        Site("none.example", None, {"/": page(), "/1": page()}),
        Site("gone.example", Reply(fault=Fault.CLOSE), {"/": page(), "/1": page()}),
        Site("away.example", redirect("http://rules.example/r.txt"), {"/": page(), "/1": page()}),
        Site("rules.example", "", {"/r.txt": "User-agent: *\nDisallow: /1\n", "/": page()}),
        Site("bomb.example", bomb, {"/": page()}),
        Site("long.example", "# x\n" * 200_000 + "User-agent: *\nDisallow: /\n", {"/": page()}),
    )
    hosts = ("a", "none", "gone", "away", "long", "rules", "bomb")
    urls = [f"http://{host}.example{path}" for host in hosts for path in ("/", "/1")]
    result = run(
        web,
        "robots",
        *unpacking,
        urls=urls + [f"http://a.example{path}" for path in links[1:]],
        CONCURRENT_REQUESTS=at_once,
        DOWNLOAD_MAXSIZE=1_000_000,
        RETRY_TIMES=0,
    )
    assert result.exit_code == 0
    denied = ["http://a.example/secret", "http://a.example/3", "http://away.example/1"]
    polite(
        result.log,
        interval=0.0,
        serial=at_once == 1,
        robots_first=True,
        robots_ttl=DAY,
        denied=denied,
    )
    assert result.stats["walsh/robots/denied"] == 5
    assert "http://bomb.example/" not in {hit.url for hit in result.log}
    assert len([hit for hit in result.log if hit.url == "http://rules.example/r.txt"]) == 1
    fetched = {hit.url for hit in result.log if hit.status == 200}
    assert {"http://none.example/1", "http://long.example/"} <= fetched
    assert not any(url.startswith("http://gone.example/") for url in fetched), "it is deferred"


@pytest.mark.parametrize("at_once", [1, 16])
def test_blocklist(direct_web, run, at_once):
    schema = "http://operator.example/schema.json"
    operator = {"/blocklist.json": blocklist("optedout.example"), "/schema.json": "{}"}
    hosts = [f"h{n}.example" for n in range(6)]
    out = page("http://www.optedout.example/", "http://optedout.example./x")
    web = direct_web(
        Site("operator.example", "", operator),
        Site("www.optedout.example", pages={"/": page()}),
        *(Site(host, "", {"/": out}) for host in hosts),
    )
    result = run(
        web,
        "blocklist",
        urls=[f"http://{host}/" for host in [*hosts, "www.optedout.example"]],
        CONCURRENT_REQUESTS=at_once,
        WALSH_BLOCKLIST_URL=LIST_URL,
        WALSH_BLOCKLIST_SCHEMA_URL=schema,
    )
    assert result.exit_code == 0
    polite(
        result.log,
        interval=0.0,
        blocked=["optedout.example"],
        robots_exempt=[LIST_URL, schema],
        documents_ttl=60.0,
    )
    documents = ["operator.example/blocklist.json", "operator.example/schema.json"]
    assert paths(result.log)[:2] == documents
    assert len(result.items) == len(hosts)
    assert result.stats["walsh/blocklist/denied"] == 2


def test_redirect_needs_no_state(direct_web, run, crawl):
    web = direct_web(Site("a.example", "", {"/": redirect("/1"), "/1": page()}))
    scrapys = "scrapy.downloadermiddlewares.redirect.RedirectMiddleware"
    result = run(
        web, "redirect", (scrapys, None), urls=["http://a.example/"], WALSH_BLOCKLIST_URL=LIST_URL
    )
    assert paths(result.log) == ["a.example/", "a.example/1"]
    assert result.log[1].header("Referer") is None
    assert not (crawl.folder / "walsh.sqlite3").exists()


@pytest.mark.parametrize("gates", [GATES, ()], ids=["Scrapy's scheduler", "the add-on"])
def test_all_of_them(loopback_web, run, gates):
    """Behind a proxy: to us the hosts are public, so none may redirect to a private address."""
    barred = "User-agent: *\nDisallow: /barred\n"
    web = loopback_web(
        Site("operator.example", barred, {"/blocklist.json": blocklist("optedout.example")}),
        Site("a.example", barred, {"/": page("/1", "/barred", "http://b.example/2"), "/1": page()}),
        Site("b.example", [busy(2, 503), ""], {"/": page("/1"), "/1": page()}),
        Site("slow.example", "User-agent: *\nCrawl-delay: 2\n", {"/": page("/1"), "/1": page()}),
        Site("far.example", "User-agent: *\nCrawl-delay: 3600\n", {"/": page(), "/1": page()}),
        Site("busy.example", "", {"/": [busy(3), page("/1")], "/1": page()}),
        Site("old.example", "", {"/": redirect("http://optedout.example/"), "/1": page()}),
        Site("inside.example", "", {"/": redirect("http://127.0.0.1:9/"), "/1": page()}),
        Site("optedout.example", "", {"/": page()}),
    )
    hosts = ("a", "b", "slow", "far", "busy", "old", "inside", "optedout")
    result = run(
        web,
        *gates,
        ("scrapy.downloadermiddlewares.redirect.RedirectMiddleware", None),
        urls=[f"http://{host}.example/" for host in hosts]
        + [f"http://{host}.example/1" for host in ("a", "far")],
        ADDONS={} if gates else ADDON["ADDONS"],
        RETRY_HTTP_CODES=WITHOUT_BUSY,
        USER_AGENT="theirs",
        WALSH_BLOCKLIST_URL=LIST_URL,
    )
    assert result.exit_code == 0
    polite(
        result.log,
        crawl_delays=web.crawl_delays,
        robots_first=True,
        robots_ttl=DAY,
        documents_ttl=60.0,
        robots_exempt=[LIST_URL],
        blocked=["optedout.example", "127.0.0.1"],
        denied=["http://a.example/barred"],
    )
    asked = paths(result.log)
    assert asked[:2] == ["operator.example/robots.txt", "operator.example/blocklist.json"]
    fetched = {
        f"{host}.example/{path}" for host in ("a", "b", "slow", "busy") for path in ("", "1")
    }
    assert {item["url"].removeprefix("http://") for item in result.items} == fetched
    assert paths(result.log, "far.example") == ["far.example/robots.txt"]
    assert result.stats["walsh/pacing/deferred"] == 2


def test_requests_past_the_scheduler_under_the_add_on(direct_web, run):
    """One request at a time, and one fetch of robots.txt for all requests that wait for it."""
    hosts = ("hub", "a", "slow", "barred")
    links = [f"http://{host}.example/{n}" for host in hosts[1:] for n in (1, 2)]
    numbered = {"/1": page(delay=0.2), "/2": page()}
    early = {"/": page(), "/early": page(), "/rules": ""}
    mixed = {
        "one.mixed.example": Reply(delay=0.2),
        "hop.mixed.example": [redirect("/rules")],
        "busy.mixed.example": [busy(2, 503), ""],
    }
    web = direct_web(
        Site("operator.example", "", {"/blocklist.json": blocklist("optedout.example")}),
        Site("hub.example", "", {"/": page(*links, "http://optedout.example/")}),
        Site("a.example", "", numbered | {"/1": [busy(2), page()]}),
        Site("slow.example", "User-agent: *\nCrawl-delay: 2\n", numbered),
        Site("barred.example", "User-agent: *\nDisallow: /1\n", numbered),
        Site("optedout.example", "", {"/": page()}),
        # Asked for past the scheduler while their robots.txt, which came from there, is out.
        *(Site(host, robots, early) for host, robots in mixed.items()),
    )
    result = run(
        web,
        spider="asker",
        urls=[
            "http://hub.example/",
            *(f"{link}?before" for link in links),
            *(f"http://{host}/" for host in mixed),
        ],
        **ADDON,
        **OUR_HANDLER,
        WALSH_SERIAL=True,
        WALSH_BLOCKLIST_URL=LIST_URL,
    )
    assert result.exit_code == 0
    polite(
        result.log,
        serial=True,
        connections=result.connections,
        crawl_delays=web.crawl_delays,
        robots_first=True,
        robots_ttl=DAY,
        robots_exempt=[LIST_URL],
        blocked=["optedout.example"],
        denied=["http://barred.example/1"],
    )
    answers = {item["asked"]: item.get("why") for item in result.items if "asked" in item}
    assert {link for link, reason in answers.items() if reason} == {
        "http://barred.example/1",
        "http://optedout.example/",
    }
    assert len(answers) == 7 + len(mixed)
    for host in mixed:
        files = (f"http://{host}/robots.txt", f"http://{host}/rules")
        robots = [hit.status for hit in result.log if hit.url in files]
        assert robots[-1] == 200, robots
        assert robots.count(200) == 1, robots
    assert {f"{link}?again" for link in links} - {item.get("url") for item in result.items} == {
        "http://barred.example/1?again"
    }


def test_denials_of_a_project_gate_are_reported(direct_web, run, on_state):
    web = direct_web(Site("a.example", "", {"/": page("/night"), "/night": page()}))
    result = run(
        web,
        ("theirs.spiders.NightMiddleware", 50),
        urls=["http://a.example/"],
        **ADDON,
    )
    assert paths(result.log) == ["a.example/robots.txt", "a.example/"]
    assert log_lines(result, "http://a.example/night ended", "closed until six")
    assert result.stats["walsh/night/denied"] == 1
    assert "1 by night" in result.stderr
    told = on_state("why", "http://a.example/night", "--json", settings=IDENTITY)
    assert "closed until six" in told.stdout
