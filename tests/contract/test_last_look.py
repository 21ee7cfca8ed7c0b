"""The last look before a download handler: whatever handler it is, by the server's log."""

import asyncio

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.test import get_crawler

from tests.helpers.sites import ADDON, AGENT, IDENTITY, paths, write_project
from walsh_scrapy.crawl.context import SystemClock
from walsh_scrapy.crawl.documents import Documents
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import note
from walsh_scrapy.exceptions import Denied, StoodStill, TooLate
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.web import Reply, Site

HANDLERS = {
    "ours": "walsh_scrapy.downloadhandler.DownloadHandler",
    "HTTP/1.1": "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler",
}
SPIDER = """
from tests.helpers.theirs import Urls


class Pages(Urls):
    name = "pages"
    urls = "http://a.example/ http://a.example/changed"


class Late:
    def process_request(self, request, spider=None):
        request.headers["User-Agent"] = "Firefox/140"
        request.headers["X-Late"] = "1"
        if request.url.endswith("/changed"):
            request._set_url("http://a.example/private")
"""
CLOSED = {
    *("host", "connection", "user-agent", "accept", "accept-encoding"),
    *("if-none-match", "if-modified-since", "proxy-authorization"),
}
SECRETS = {"X-Api-Key": "secret", "Accept-Language": "en", "Accept": "text/html"}


@pytest.fixture(scope="module", params=HANDLERS)
def late(request, shared_crawl, tmp_path_factory, pytestconfig):
    """A crawl with a middleware behind all of ours, once with each handler."""
    robots = Reply("User-agent: *\nDisallow: /private\n", headers={"Set-Cookie": "a=1"})
    page = Reply("<title>x</title>", content_type="text/html")
    web = DirectWeb(Site("a.example", robots, dict.fromkeys(("/", "/private", "/changed"), page)))
    settings = {
        **ADDON,
        **IDENTITY,
        "DEFAULT_REQUEST_HEADERS": SECRETS,
        "DOWNLOAD_HANDLERS": {"http": HANDLERS[request.param]},
        "DOWNLOADER_MIDDLEWARES": {"theirs.spiders.Late": 900},
    }
    folder = tmp_path_factory.mktemp("project")
    project = write_project(folder / "project", settings, spiders=SPIDER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
        return shared_crawl(web, "pages", project=project)


def test_the_user_agent_is_the_bots(late):
    assert {hit.header("User-Agent") for hit in late.log} == {AGENT}


def test_a_changed_url_is_not_sent(late):
    assert paths(late.log) == ["a.example/robots.txt", "a.example/"]
    (changed,) = [item for item in late.items if item["url"] != "http://a.example/"]
    assert changed["trouble"] == "Denied"


def test_robots_txt_gets_a_closed_list_of_headers(late):
    robots, page = late.log
    assert {name.lower() for name, _ in robots.headers} <= CLOSED
    assert page.header("X-Api-Key") == "secret"
    assert page.header("X-Late") == "1"


def test_no_cookie_of_robots_txt_goes_back(late):
    assert not late.log[1].header("Cookie")


# Time: the host may be another worker's after `until`.


class Handler:
    """A handler that answers when it is told to; it notes what it was called with."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.calls = 0
        self.was_cancelled = False

    async def __call__(self, request):
        self.calls += 1
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return Response(request.url)


def download(handler, seconds_left, url="http://a.example/", released=True):
    settings = Settings({"DOWNLOADER_MIDDLEWARES": {Gate.PACING.path: Gate.PACING.order}})
    clock = SystemClock(lambda: 0.0)
    documents = Documents(settings, AGENT, MemoryStatsCollector(get_crawler()), lambda: clock)
    request = Request(url)
    note(request, released=released, until=clock.moment() + seconds_left)
    return asyncio.run(documents.download(handler, request))


def test_a_request_whose_time_is_over_is_not_sent():
    handler = Handler(0.0)
    with pytest.raises(TooLate):
        download(handler, 0.5)
    assert handler.calls == 0


def test_no_exchange_outlives_the_time_of_its_host():
    handler = Handler(3600.0)
    with pytest.raises(StoodStill):
        download(handler, 1.2)
    assert handler.was_cancelled


def test_a_url_that_no_gate_has_judged_is_not_sent():
    handler = Handler(0.0)
    with pytest.raises(Denied):
        download(handler, 60.0, released=False)
    assert handler.calls == 0


@pytest.mark.parametrize("url", ["data:,x", "ftp://a.example/x", "file:///tmp/x"])
def test_other_schemes_have_no_exchange(url):
    handler = Handler(0.0)
    download(handler, 0.0, url, released=False)
    assert handler.calls == 1
