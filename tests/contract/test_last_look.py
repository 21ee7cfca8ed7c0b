"""The last look before a download handler: whatever handler it is, by the server's log."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.test import get_crawler
from sqlalchemy import text

from tests.helpers import HANG_SECONDS, ROOT
from tests.helpers.sites import ADDON, AGENT, IDENTITY, paths, rows_of, trouble, write_project
from walsh_scrapy.addon import Addon
from walsh_scrapy.crawl.context import SystemClock
from walsh_scrapy.crawl.documents.downloads import Documents
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import note
from walsh_scrapy.exceptions import Denied, StoodStill, TooLate
from walsh_scrapy.state import State
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Fault, Reply, Site

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


# HTTP/2, which Scrapy's own handler speaks over TLS only.


@pytest.fixture
def http2_site(tmp_path):
    """Start a site over HTTP/2; it is a process, whose output is its log."""
    pem = tmp_path / "localhost.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(pem)
    command = [sys.executable, "-m", "tests.helpers.http2", str(pem)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_the_last_look_holds_for_http2(http2_site, tmp_path, installed, run_python):
    origin = f"https://localhost:{int(http2_site.stdout.readline())}"
    settings = {
        **ADDON,
        **IDENTITY,
        "DEFAULT_REQUEST_HEADERS": SECRETS,
        "DOWNLOAD_HANDLERS": {
            "https": "scrapy.core.downloader.handlers.http2.H2DownloadHandler",
        },
        "DOWNLOADER_MIDDLEWARES": {"theirs.spiders.Late": 900},
    }
    spider = SPIDER.replace("http://a.example", origin)
    project = write_project(tmp_path / "project", settings, spiders=spider)
    done = run_python("-m", "scrapy", "crawl", "pages", cwd=project)
    assert done.returncode == 0, done.stderr
    http2_site.terminate()
    robots, page = (json.loads(line) for line in http2_site.stdout)
    assert [robots["path"], page["path"]] == ["/robots.txt", "/"], done.stderr
    assert {hit["protocol"] for hit in (robots, page)} == {"HTTP/2"}
    assert {hit["headers"]["user-agent"] for hit in (robots, page)} == {AGENT}
    assert set(robots["headers"]) <= CLOSED | {"content-length"}, "which Scrapy sends with HTTP/2"
    assert page["headers"]["x-api-key"] == "secret"
    assert "cookie" not in page["headers"]


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
    clock = SystemClock(lambda: 0.0)
    stats = MemoryStatsCollector(get_crawler())
    options = SimpleNamespace(user_agent=AGENT)
    context = SimpleNamespace(clock=clock)
    crawl = SimpleNamespace(
        settings=Settings(), gates={Gate.PACING}, options=options, stats=stats, context=context
    )
    documents = Documents(crawl)
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


COUNT = text("SELECT count(*) FROM requests")
FROZEN = """
import os
import signal

from scrapy import signals

from tests.helpers.theirs import Urls


class Pages(Urls):
    name = "pages"
    urls = "http://a.example/"
    freezes = ""

    @classmethod
    def from_crawler(cls, crawler, **arguments):
        spider = super().from_crawler(crawler, **arguments)
        crawler.signals.connect(spider.is_begun, signal=signals.request_reached_downloader)
        return spider

    def is_begun(self, request):
        if self.freezes and request.url == "http://a.example/":
            self.freezes = ""
            os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.long
@pytest.mark.parametrize("handler", [*HANDLERS, "the add-on's"])
def test_a_worker_that_froze_after_begin_sends_nothing_late(
    direct_web, crawl, tmp_path, installed, url, handler
):
    """The other worker has the host when it goes on; its own time is over."""
    page = Reply("<title>x</title>", content_type="text/html")
    web = direct_web(Site("a.example", "", {"/": page, "/2": page}))
    own = {"DOWNLOAD_HANDLERS": {"http": HANDLERS[handler]}} if handler in HANDLERS else {}
    project = write_project(tmp_path / "project", ADDON | IDENTITY | own, spiders=FROZEN)
    settings = trouble("ShortBeats") | {"DOWNLOAD_TIMEOUT": 2, "WALSH_STATE_URL": url}
    given = {"project": project, "settings": settings}
    frozen = crawl.start(web, "pages", arguments={"freezes": "1"}, **given)
    wait_until_stopped(frozen.pid)
    assert paths(web.log) == ["a.example/robots.txt"], "it has begun its page, and sent nothing"
    urls = {"urls": "http://a.example/2 http://a.example/"}
    other = crawl.start(web, "pages", arguments=urls, **given)
    assert web.wait_for(lambda log: any(hit.path == "/2" for hit in log), HANG_SECONDS)
    os.kill(frozen.pid, signal.SIGCONT)
    assert [crawled.wait(HANG_SECONDS).exit_code for crawled in (frozen, other)] == [0, 0]
    assert_polite(web.log, user_agent=AGENT, serial=False)
    with closing(State(url)) as state:
        sent = state.read(lambda connection: connection.execute(COUNT).scalar())
    assert sent == len(web.log), "none went out without a begin of its own"


def wait_until_stopped(pid):
    """Wait until a process has stopped itself."""
    until = time.monotonic() + HANG_SECONDS
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until
        time.sleep(0.02)


BROKEN = """
from tests.helpers.theirs import Urls


class Pages(Urls):
    name = "pages"
"""


@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
def test_a_broken_kept_connection_sends_nothing_by_itself(
    direct_web, crawl, tmp_path, installed, fault
):
    """Twisted would send it again at once, unseen by the gates. A retry has a begin of its own."""
    requests = Counter()

    def answer(hit):
        requests[hit.client] += 1
        page = Reply("<title>x</title>", content_type="text/html")
        return page if requests[hit.client] == 1 else replace(page, fault=fault)

    names = [f"/{number}" for number in range(4)]
    web = direct_web(Site("a.example", answer, dict.fromkeys(names, answer)))
    project = write_project(tmp_path / "project", ADDON | IDENTITY, spiders=BROKEN)
    urls = " ".join(f"http://a.example{name}" for name in names)
    result = crawl(web, "pages", project=project, arguments={"urls": urls})
    assert {item["url"] for item in result.items if "trouble" not in item} == set(urls.split())
    assert_polite(result.log, user_agent=AGENT, serial=False)
    assert rows_of(crawl, "SELECT count(*) FROM requests") == [(len(result.log),)]


@pytest.mark.parametrize(("extensions", "most"), [({}, 40), (trouble("FewDescriptors"), 16)])
def test_connections_are_used_again_and_few_stay_idle(
    direct_web, crawl, tmp_path, installed, extensions, most
):
    """A page of each host in turn: with fewer connections each page would need a new one."""
    hosts = [f"h{number}.example" for number in range(40)]
    web = direct_web(*(Site(host, "", {"/": Reply("x")}) for host in hosts))
    project = write_project(tmp_path / "project", ADDON | IDENTITY, spiders=BROKEN)
    urls = " ".join(f"http://{host}/" for host in hosts)
    options = {"arguments": {"urls": urls}, "settings": extensions}
    result = crawl(web, "pages", project=project, **options)
    assert len(result.items) == len(hosts)
    assert 1 < web.most_open_connections <= most + 16
    if most >= len(hosts):
        assert len(result.connections) == len(hosts)


@pytest.mark.parametrize(("given", "expected"), [(0, 3500), (180, 180), (7200, 3500)])
def test_a_request_has_a_time_limit_of_an_hour_at_most(given, expected):
    settings = Settings(IDENTITY | {"DOWNLOAD_TIMEOUT": given})
    Addon(SimpleNamespace(spidercls=Spider)).update_settings(settings)
    assert settings.getfloat("DOWNLOAD_TIMEOUT") == expected
