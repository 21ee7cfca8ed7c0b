"""What a project keeps with the add-on: the same requests as without it (decision 47).

Each case runs twice, and the logs of the servers are compared: the same requests with the same
headers. Left out are the User-Agent, the order, requests of ours, and retries of 429 and 503.
"""

import gzip
import io
import socket
from collections import Counter
from dataclasses import replace

import brotli
import pytest
import zstandard
from PIL import Image
from scrapy import Spider
from scrapy.exceptions import CannotResolveHostError, DownloadConnectionRefusedError
from scrapy.settings import Settings

from tests.helpers import HANG_SECONDS
from tests.helpers.sites import (
    ADDON,
    OUR_HANDLER,
    blamed_hosts,
    paths,
    refusal,
    rows_of,
    trouble,
    write_project,
)
from walsh_scrapy.addon import DECLARED_MUSTS, Addon
from walsh_scrapy.policy.pacing import MARGIN
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.site import RIGHT, UNKNOWN, Answer, Down
from walsh_scrapy.testing.web import Certificate, Reply, Site, redirect
from walsh_scrapy.wire.endpoints import ConnectionRefused, NoAddress

AGENT = "Example-Bot/1.0 (+https://bot.example/)"
#: Quick enough for a test, and the same with the add-on and without it.
PROJECT = {"USER_AGENT": AGENT, "DOWNLOAD_DELAY": 0.05, "ROBOTSTXT_OBEY": False}
PAGE = Reply("<title>x</title>", content_type="text/html")
DEAD_LINKS = (DownloadConnectionRefusedError, CannotResolveHostError)
#: What differs from one connection, or one crawl, to the next.
NOISE = {"user-agent", "connection", "host"}

SPIDERS = """
import itertools

from scrapy import FormRequest, Request
from scrapy.http import Response

from tests.helpers.theirs import Urls


class Pages(Urls):
    name = "pages"


class Unfiltered(Urls):
    name = "unfiltered"

    def request(self, url):
        return Request(url, dont_filter=True, errback=self.ended)


class Login(Urls):
    name = "login"

    async def start(self):
        yield Request("http://shop.example/login", self.fill)

    def fill(self, response):
        data = {"user": "me", "password": "s3cret"}
        yield FormRequest("http://shop.example/login", self.welcome, formdata=data)

    def welcome(self, response):
        for number in range(20):
            yield Request(f"http://shop.example/{number}", errback=self.ended)


class Basic(Urls):
    name = "basic"
    http_user, http_pass, http_auth_domain = "me", "s3cret", "a.example"


class Keys(Urls):
    name = "keys"
    custom_settings = {"DEFAULT_REQUEST_HEADERS": {"X-Api-Key": "k", "Accept-Language": "de"}}


class Posts(Urls):
    name = "posts"

    def request(self, url):
        return FormRequest(url, formdata={"q": "x"}, errback=self.ended)


class Links(Urls):
    name = "links"

    def parse(self, response):
        yield {"url": response.url}
        if hasattr(response, "css"):
            for link in response.css("a::attr(href)").getall():
                yield Request(response.urljoin(link), errback=self.ended)


class Rotating:
    # Gives each request, and each retry, the next proxy.

    def __init__(self, crawler):
        self.proxies = itertools.cycle(crawler.settings.getlist("PROXIES"))

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def process_request(self, request, spider=None):
        request.meta["proxy"] = next(self.proxies)


class Stub:
    lazy = True

    def __init__(self, crawler=None):
        pass

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def download_request(self, request):
        return Response(request.url)

    async def close(self):
        pass


class Browser(Stub):
    # Follows redirects itself, and spells URLs in its own way.

    async def download_request(self, request):
        return Response(request.url.replace("/moved", "/other").replace("'", "%27"))


class Files(Urls):
    name = "files"

    def parse(self, response):
        yield {"file_urls": [response.urljoin(a) for a in response.css("a::attr(href)").getall()]}


class Large(Urls):
    name = "large"

    def parse(self, response):
        yield {"url": response.url, "bytes": len(response.body)}
"""


@pytest.fixture
def run(crawl, tmp_path, installed):
    """Run a spider of the project, with the add-on or without it."""

    def run_spider(web, spider, *urls, with_addon=True, environment=None, **settings):
        given = PROJECT | (ADDON if with_addon else {}) | settings
        name = "with" if with_addon else "without"
        project = write_project(tmp_path / name, given, spiders=SPIDERS)
        arguments = {"urls": " ".join(urls)} if urls else {}
        return crawl(web, spider, project=project, arguments=arguments, environment=environment)

    return run_spider


def requests_of(log):
    """The requests of a project, each with its headers, and how often it was made."""
    return Counter(
        (
            hit.method,
            hit.url,
            tuple(sorted((k.lower(), v) for k, v in hit.headers if k.lower() not in NOISE)),
        )
        for hit in log
        if hit.path != "/robots.txt" and hit.status not in (429, 503)
    )


def compare(direct_web, run, sites, spider, *urls, **settings):
    """Run a spider without and with the add-on; return both results after comparing the logs."""
    results = [
        run(direct_web(*sites()), spider, *urls, with_addon=with_addon, **settings)
        for with_addon in (False, True)
    ]
    plain, polite = (requests_of(result.log) for result in results)
    assert polite == plain, results[1].stderr
    assert plain
    return results


def test_a_login_by_form_lasts_over_twenty_pages(direct_web, run):
    def login(hit):
        if hit.method == "GET":
            return Reply("", headers={"Set-Cookie": "csrf=1; Path=/"})
        headers = {"Set-Cookie": "session=abc; Path=/", "Location": "/home"}
        return Reply(status=302, headers=headers, content_type=None)

    def sites():
        pages = {f"/{number}": PAGE for number in range(20)}
        yield Site("shop.example", "", {"/login": login, "/home": PAGE, **pages})

    _, polite = compare(direct_web, run, sites, "login")
    pages = [hit for hit in polite.log if hit.path.strip("/").isdigit()]
    assert {hit.header("Cookie") for hit in pages} == {"csrf=1; session=abc"}
    assert len(pages) == 20


@pytest.mark.parametrize("spider", ["basic", "keys", "posts"])
def test_credentials_keys_and_forms_are_sent(direct_web, run, spider):
    def sites():
        yield Site("a.example", "", {"/": PAGE, "/moved": redirect("/")})

    compare(direct_web, run, sites, spider, "http://a.example/", "http://a.example/moved")


@pytest.mark.parametrize(
    ("settings", "answers"),
    [
        ({"RETRY_HTTP_CODES": [403]}, [Reply(status=403)] * 6),
        ({}, [Reply(status=500), Reply(status=502), PAGE]),
        ({"RETRY_TIMES": 1}, [Reply(status=504), PAGE]),
        ({"HTTPERROR_ALLOW_ALL": True}, [Reply(status=404)]),
        ({"DOWNLOAD_TIMEOUT": 1}, [Reply("x", delay=3.0), PAGE]),
    ],
    ids=["six 403", "5xx", "one retry", "404", "timeouts"],
)
def test_failures_that_are_no_refusal_are_the_projects(direct_web, run, settings, answers):
    names = [f"/{number}" for number in range(4)]

    def sites():
        yield Site("a.example", "", dict.fromkeys(names, answers))
        yield Site("b.example", "", dict.fromkeys(names, PAGE))

    urls = [f"http://{host}.example{name}" for host in "ab" for name in names]
    compare(direct_web, run, sites, "pages", *urls, **settings)


def test_dead_hosts_are_the_projects(direct_web, run, crawl):
    """Each page is tried as often as Scrapy would, and no host is left alone for it."""
    urls = [f"http://{host}.example/{page}" for host in ("dead", "a") for page in (1, 2)]
    ends = []
    for with_addon in (False, True):
        web = direct_web(
            Site("dead.example", "", {}, down=Down.MUTE),
            Site("a.example", "", {"/1": PAGE, "/2": PAGE}),
        )
        settings = {"DOWNLOAD_TIMEOUT": 1, "RETRY_TIMES": 1, "WALSH_ROBOTS_UNREACHABLE": "allow"}
        if with_addon:
            settings["WALSH_MAX_RETRIES"] = 0
        result = run(web, "pages", *urls, with_addon=with_addon, **settings)
        ends.append({item["url"]: item.get("trouble") for item in result.items})
    assert ends[0] == ends[1]
    assert blamed_hosts(crawl) == ["dead.example"], "its robots.txt failed, which is a refusal"


@pytest.mark.parametrize("handler", [{}, OUR_HANDLER], ids=["Scrapy's", "ours"])
def test_a_dead_link_puts_no_host_on_hold(direct_web, run, crawl, handler):
    """One to a closed port of a host that answers at another one, or to a name without address."""
    pages = ["http://a.example/1", "https://a.example:9443/x", "http://none.example/"]
    pages += [f"http://a.example/{number}" for number in range(2, 6)]
    a = Site("a.example", "", {f"/{number}": PAGE for number in range(6)})
    web = direct_web(a, Site("none.example", "", {}, dns=UNKNOWN))
    result = run(web, "pages", *pages, **handler, RETRY_TIMES=1)
    ends = {item["url"]: item.get("trouble") for item in result.items}
    names = [ConnectionRefused, NoAddress] if handler else DEAD_LINKS
    dead = dict(zip(pages[1:3], (kind.__name__ for kind in names), strict=True))
    assert ends == dict.fromkeys(pages) | dead
    assert blamed_hosts(crawl) == []
    assert result.stats["elapsed_time_seconds"] < 20, result.stderr
    assert "walsh/backoff/retried" not in result.stats
    assert result.stats["retry/count"] == 2, "by the project's RETRY_TIMES"
    assert result.stats["finish_reason"] == "finished"


@pytest.mark.parametrize("status", [429, 503])
def test_a_form_that_was_refused_is_sent_once_more(direct_web, run, status):
    busy = Reply(status=status, headers={"Retry-After": "1"})

    def sites():
        yield Site("a.example", "", {"/": [busy, PAGE]})

    compare(direct_web, run, sites, "posts", "http://a.example/", RETRY_TIMES=1)


def test_a_redirect_that_sets_a_cookie_leads_to_the_same_url(direct_web, run):
    """As many shops do. In a declared crawl, which keeps no cookie, it is a loop."""

    def front(hit):
        headers = {"Set-Cookie": "seen=1; Path=/", "Location": "/"}
        return PAGE if hit.header("Cookie") else Reply(status=302, headers=headers)

    def sites():
        yield Site("a.example", "", {"/": front})

    _, polite = compare(direct_web, run, sites, "unfiltered", "http://a.example/")
    assert [item["url"] for item in polite.items] == ["http://a.example/"]


@pytest.mark.long
def test_a_large_body_comes_whole(direct_web, run):
    size = 200 * 2**20
    web = direct_web(Site("a.example", "", {"/": Reply(bytes(size), content_type="text/plain")}))
    result = run(web, "large", "http://a.example/")
    assert [item["bytes"] for item in result.items] == [size]


PACKED = {
    "gzip": gzip.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("coding", PACKED)
def test_compressed_pages_are_those_of_scrapy(direct_web, run, coding):
    body = b"<title>x</title>" * 99
    packed = Reply(
        PACKED[coding](body), headers={"Content-Encoding": coding}, content_type="text/html"
    )

    def sites():
        yield Site("a.example", "", {"/": packed})

    results = compare(direct_web, run, sites, "large", "http://a.example/")
    assert [result.items[0]["bytes"] for result in results] == [len(body)] * 2
    (page,) = (hit for hit in results[1].log if hit.path == "/")
    assert coding in page.header("Accept-Encoding")


def test_a_bad_certificate_is_the_projects(direct_web, run):
    def sites():
        yield Site("a.example", "", {"/": PAGE}, tls=Certificate.SELF_SIGNED)

    compare(direct_web, run, sites, "pages", "https://a.example/")


def test_a_cache_of_the_project_answers(direct_web, run, tmp_path):
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    web = direct_web(Site("a.example", "", {"/": PAGE}))
    first = run(web, "pages", "http://a.example/", **cache)
    assert paths(first.log) == ["a.example/robots.txt", "a.example/"]
    second = run(web, "pages", "http://a.example/", **cache)
    assert second.log == []
    assert len(second.items) == 1


# Other schemes pass no delay. A page of the web leads to none of this machine.


def test_local_schemes_are_for_start_and_what_follows_from_them(direct_web, run, tmp_path):
    file = tmp_path / "list.html"
    file.write_text(f'<a href="http://a.example/">a</a><a href="file://{tmp_path}/next.html">n</a>')
    (tmp_path / "next.html").write_text("<title>next</title>")
    links = f'<a href="file://{file}">f</a><a href="data:,x">d</a><a href="/2">2</a>'
    web = direct_web(
        Site("a.example", "", {"/": Reply(links, content_type="text/html"), "/2": PAGE})
    )
    result = run(web, "links", f"file://{file}", "data:text/html,x")
    assert {item["url"] for item in result.items} == {
        f"file://{file}",
        f"file://{tmp_path}/next.html",
        "data:text/html,x",
        "http://a.example/",
        "http://a.example/2",
    }
    assert result.stats["walsh/address/denied"] == 2
    reasons = {reason for (reason,) in rows_of(result, "SELECT reason FROM denials")}
    assert reasons == {f"a page of the web leads to a {name}: URL" for name in ("file", "data")}
    assert rows_of(result, "SELECT count(*) FROM hosts WHERE host = ''") == [(0,)]


def test_ftp_passes_the_blocklist_and_no_delay(direct_web, run, tmp_path):
    """The handler of the project is a stub: what counts is which requests it gets."""
    listed = tmp_path / "blocked.txt"
    listed.write_text("listed.example\n")
    urls = [f"ftp://{host}.example/{page}" for host in ("a", "listed") for page in (1, 2)]
    settings = {
        "DOWNLOAD_HANDLERS": {"ftp": "theirs.spiders.Stub"},
        "WALSH_BLOCKLIST_FILE": str(listed),
        "DOWNLOAD_DELAY": 5,
    }
    web = direct_web(Site("a.example", "", {}))
    result = run(web, "pages", *urls, **settings)
    ends = {item["url"]: item.get("trouble") for item in result.items}
    assert ends == dict.fromkeys(urls[:2]) | dict.fromkeys(urls[2:], "Denied")
    assert web.log == [], "there is no robots.txt for ftp"
    assert result.stats["elapsed_time_seconds"] < 5


def test_the_files_pipeline_downloads_politely(direct_web, run, tmp_path):
    files = {f"/{number}.pdf": Reply(b"%PDF", content_type="application/pdf") for number in "12"}
    links = "".join(f'<a href="{path}">x</a>' for path in [*files, "/private/3.pdf"])
    page = Reply(links, content_type="text/html")
    web = direct_web(
        Site("a.example", "User-agent: *\nDisallow: /private/\n", {"/": page, **files})
    )
    settings = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": str(tmp_path / "files"),
    }
    result = run(web, "files", "http://a.example/", **settings)
    (item,) = result.items
    assert sorted(file["url"][-5:] for file in item["files"]) == ["1.pdf", "2.pdf"]
    assert_polite(web.log, user_agent=AGENT, serial=False, anonymous=False, interval=0.05)


def test_the_images_pipeline_downloads_politely(direct_web, run, tmp_path):
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    image = Reply(file.getvalue(), content_type="image/png")
    page = Reply('<a href="/1.png">x</a><a href="/private/2.png">x</a>', content_type="text/html")
    web = direct_web(
        Site("a.example", "User-agent: *\nDisallow: /private/\n", {"/": page, "/1.png": image})
    )
    settings = {
        "ITEM_PIPELINES": {"scrapy.pipelines.images.ImagesPipeline": 1},
        "IMAGES_STORE": str(tmp_path / "images"),
        "IMAGES_URLS_FIELD": "file_urls",
    }
    result = run(web, "files", "http://a.example/", **settings)
    (item,) = result.items
    assert [image["url"] for image in item["images"]] == ["http://a.example/1.png"]
    assert_polite(web.log, user_agent=AGENT, serial=False, anonymous=False, interval=0.05)


# Delays, in simulated time.

DELAYS = """
from tests.helpers.theirs import Urls


class ByAttribute(Urls):
    name = "attribute"
    download_delay = {delay}


class ByCustomSettings(Urls):
    name = "custom"
    custom_settings = {{"DOWNLOAD_DELAY": {delay}}}


class Pages(Urls):
    name = "pages"
"""


@pytest.mark.parametrize("delay", [0, 0.25, 5])
@pytest.mark.parametrize("way", ["attribute", "custom", "-s", "settings"])
@pytest.mark.parametrize("throttled", [False, True])
def test_the_delay_is_the_projects(simulated, tmp_path, delay, way, throttled):
    """With AutoThrottle it is at least what the last answer took, and 2 s before the first page."""
    settings = ADDON | {"USER_AGENT": AGENT, "AUTOTHROTTLE_ENABLED": throttled}
    settings["AUTOTHROTTLE_START_DELAY"] = 2
    if way == "settings":
        settings["DOWNLOAD_DELAY"] = delay
    project = write_project(tmp_path / "theirs", settings, spiders=DELAYS.format(delay=delay))
    names = [f"/{number}" for number in range(4)]
    page = Reply("<title>x</title>", content_type="text/html", delay=0.5)
    (result,) = simulated(
        Site("a.example", Reply("", delay=0.5), dict.fromkeys(names, page)),
        spider=way if way in ("attribute", "custom") else "pages",
        project=project,
        arguments={"urls": " ".join(f"http://a.example{name}" for name in names)},
        settings={"DOWNLOAD_DELAY": delay} if way == "-s" else {},
    )
    ended = [hit.ended for hit in result.log]
    first, *later = (hit.started - end for hit, end in zip(result.log[1:], ended, strict=False))
    least = max(delay, 0.5) if throttled else delay
    assert max(least, 2.0 if throttled else 0.0) <= first < max(least, 2.0) + 1.0
    assert all(least <= gap < least + 0.5 for gap in later), later


# A public page leads to no private host (decision 16).

INSIDE = Answer(("127.0.0.7",))
PUBLIC_WEB = {"EXTENSIONS": {"tests.helpers.problems.PublicWeb": 0}}


def link(url):
    return Reply(f'<a href="{url}">x</a>', content_type="text/html")


def refresh(url):
    page = f'<meta http-equiv="refresh" content="0;url={url}">'
    return Reply(page, content_type="text/html")


@pytest.mark.parametrize("handler", [{}, OUR_HANDLER], ids=["Scrapy's", "ours"])
@pytest.mark.parametrize("lead", [link, redirect, refresh])
@pytest.mark.parametrize("place", ["inside.example", "127.0.0.7", "localhost", "[::1]"])
def test_a_public_page_leads_to_no_private_host(direct_web, run, handler, lead, place):
    web = direct_web(
        Site("blog.example", "", {"/": lead(f"http://{place}/admin")}),
        Site("inside.example", "", {"/": PAGE, "/admin": PAGE}, dns=INSIDE),
    )
    urls = ("http://blog.example/", "http://inside.example/")
    result = run(web, "links", *urls, **handler, **PUBLIC_WEB)
    assert not [hit for hit in web.log if hit.path == "/admin"], result.stderr
    assert "inside.example/" in paths(web.log), "a start request may lead there"
    assert result.stats["walsh/privatehosts/denied"] == 1


@pytest.mark.parametrize("handler", [{}, OUR_HANDLER], ids=["Scrapy's", "ours"])
@pytest.mark.parametrize("lead", [link, redirect])
def test_a_private_page_leads_to_private_hosts(direct_web, run, handler, lead):
    web = direct_web(
        Site("wiki.example", "", {"/": lead("http://sso.example/")}, dns=INSIDE),
        Site("sso.example", "", {"/": PAGE}, dns=Answer(("127.0.0.8",))),
    )
    run(web, "links", "http://wiki.example/", **handler, **PUBLIC_WEB)
    assert paths(web.log)[-1] == "sso.example/"


@pytest.mark.parametrize("lead", [link, redirect, refresh])
def test_a_copy_of_a_public_page_leads_to_no_private_host(direct_web, run, tmp_path, lead):
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    web = direct_web(
        Site("blog.example", "", {"/": lead("http://inside.example/admin")}),
        Site("inside.example", "", {"/admin": PAGE}, dns=INSIDE),
    )
    for _ in range(2):
        result = run(web, "links", "http://blog.example/", **cache, **PUBLIC_WEB)
        assert result.stats["walsh/privatehosts/denied"] == 1
    assert result.log == [], "the page of the second run is a copy"
    assert not [hit for hit in web.log if hit.path == "/admin"]


def test_a_file_that_an_item_names_is_denied(direct_web, run, tmp_path):
    """A page of the web may have named it: the pipeline would store the operator's file."""
    page = link("file:///etc/hostname")
    web = direct_web(Site("a.example", "", {"/": page}))
    settings = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": str(tmp_path / "files"),
    }
    result = run(web, "files", "http://a.example/", **settings)
    assert [item["files"] for item in result.items] == [[]]
    assert result.stats["walsh/address/denied"] == 1


@pytest.mark.parametrize("place", ["intranet", "10.0.0.1", "localhost"])
def test_behind_a_proxy_names_decide(loopback_web, run, place):
    """The proxy of this web has a private address, as most have."""
    web = loopback_web(
        Site("blog.example", "", {"/": link(f"http://{place}/admin"), "/2": PAGE}),
        Site(place, "", {"/admin": PAGE}),
    )
    result = run(web, "links", "http://blog.example/", "http://blog.example/2")
    assert not [hit for hit in web.log if hit.path == "/admin"]
    assert result.stats["walsh/privatehosts/denied"] == 1
    assert {hit.host for hit in web.log} == {"blog.example"}


@pytest.mark.parametrize("handler", [{}, OUR_HANDLER], ids=["Scrapy's", "ours"])
def test_a_page_of_a_rebound_name_is_dropped(direct_web, run, handler):
    """With Scrapy's handler the request was sent; no callback gets its response."""
    pages = {"/1": PAGE, "/2": Reply("secret", content_type="text/plain")}
    dns = [RIGHT, RIGHT, INSIDE]
    close = {"Connection": "close"}
    pages = {path: replace(page, headers=close) for path, page in pages.items()}
    web = direct_web(Site("blog.example", Reply("", headers=close), pages, dns=dns))
    urls = ("http://blog.example/1", "http://blog.example/2")
    result = run(web, "pages", *urls, **handler, **PUBLIC_WEB, DNSCACHE_ENABLED=False)
    ends = {item["url"]: item.get("trouble") for item in result.items}
    assert sorted(ends.values(), key=str) == ["Denied", None], result.stderr
    assert len([hit for hit in web.log if hit.path != "/robots.txt"]) == (1 if handler else 2)


# Proxies: a failure through one is the proxy's.

NAMES_PROXIES = {"theirs.spiders.Rotating": 610}


def test_the_proxy_of_a_request_is_used_for_its_robots_txt_too(loopback_web, run):
    """There is no other way to the host: its name is known to the proxy alone."""
    web = loopback_web(Site("a.example", "", {"/": PAGE}))
    names = [name for name in web.environment if name.lower().endswith("_proxy")]
    settings = {
        "DOWNLOADER_MIDDLEWARES": NAMES_PROXIES,
        "PROXIES": [web.environment["http_proxy"]],
        "environment": dict.fromkeys(names, ""),
    }
    result = run(web, "pages", "http://a.example/", **settings)
    assert paths(result.log) == ["a.example/robots.txt", "a.example/"], result.stderr


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_rotating_middleware_brings_the_next_proxy(loopback_web, run, crawl):
    web = loopback_web(Site("a.example", "", {"/": PAGE, "/2": PAGE}))
    dead = f"http://me:s3cret@127.0.0.1:{free_port()}"
    gateway = web.environment["http_proxy"]
    urls = ("http://a.example/", "http://a.example/2")
    settings = {"DOWNLOADER_MIDDLEWARES": NAMES_PROXIES, "PROXIES": [dead, gateway]}
    result = run(web, "pages", *urls, **settings)
    assert sorted(item["url"] for item in result.items) == list(urls), result.stderr
    assert {item.get("trouble") for item in result.items} == {None}
    assert blamed_hosts(crawl) == []
    assert "s3cret" not in result.stderr


def test_a_proxy_that_hangs_costs_no_host(loopback_web, run, crawl):
    """The time that it takes is not the host's: robots.txt comes through the next one."""
    web = loopback_web(Site("a.example", "", {"/": PAGE}))
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        proxies = [f"http://127.0.0.1:{hangs.getsockname()[1]}", web.environment["http_proxy"]]
        settings = {"DOWNLOADER_MIDDLEWARES": NAMES_PROXIES, "DOWNLOAD_TIMEOUT": 1}
        result = run(web, "pages", "http://a.example/", **settings, PROXIES=proxies)
    assert [item.get("trouble") for item in result.items] == [None], result.stderr
    assert blamed_hosts(crawl) == []


def test_a_proxy_that_our_handler_cannot_use_is_the_projects(direct_web, run):
    """Its own handler may know socks5; nothing is said of it at the start."""
    web = direct_web(Site("a.example", "", {"/": PAGE}))
    environment = {"https_proxy": "socks5://127.0.0.1:1080"}
    result = run(web, "pages", "http://a.example/", environment=environment)
    assert paths(result.log) == ["a.example/robots.txt", "a.example/"], result.stderr


def test_a_handler_that_follows_redirects_itself_is_named_once(direct_web, run):
    """As a browser does: what it requests then passes no gate, and that is not silent."""
    web = direct_web(Site("a.example", "", {}))
    urls = [f"http://a.example{path}" for path in ("/it's", "/#top", "/moved", "/moved?again")]
    handlers = {"DOWNLOAD_HANDLERS": {"http": "theirs.spiders.Browser"}}
    result = run(web, "pages", *urls, **handlers)
    (line,) = (line for line in result.stderr.splitlines() if "neither checked nor paced" in line)
    assert "returned http://a.example/other for http://a.example/moved:" in line
    assert len(result.items) == len(urls)


@pytest.mark.parametrize("name", DECLARED_MUSTS)
def test_what_is_not_impolite_is_not_forced(name):
    given = ADDON | {"USER_AGENT": AGENT, name: "1"}
    settings = Settings(given)

    class Crawler:
        spidercls = Spider

    Addon(Crawler).update_settings(settings)
    assert settings[name] == "1"


# Two workers on one state.


@pytest.mark.long
@pytest.mark.parametrize("handler", [{}, OUR_HANDLER], ids=["Scrapy's", "ours"])
def test_a_killed_worker_leaves_its_hosts_to_another(
    direct_web, crawl, tmp_path, installed, url, handler
):
    web = direct_web(Site("a.example", "", {"/slow": Reply("x", delay=60.0), "/2": PAGE}))
    given = PROJECT | ADDON | handler | {"DOWNLOAD_DELAY": 1, "DOWNLOAD_TIMEOUT": 3}
    project = write_project(tmp_path / "project", given, spiders=SPIDERS)
    options = {"project": project, "settings": trouble("ShortBeats") | {"WALSH_STATE_URL": url}}
    first = crawl.start(web, "pages", arguments={"urls": "http://a.example/slow"}, **options)
    assert web.wait_for(lambda log: any(hit.path == "/slow" for hit in log), HANG_SECONDS)
    first.kill()
    other = crawl(web, "pages", arguments={"urls": "http://a.example/2"}, **options)
    assert paths(other.log)[-1] == "a.example/2", other.stderr
    slow, second = (hit for hit in web.log if hit.path != "/robots.txt")
    assert second.started - slow.started >= 3 + MARGIN, "its request counts until its latest end"
    assert_polite(web.log, user_agent=AGENT, serial=False)


# A switch for tests from before the add-on.


def test_tests_of_others_need_not_wait(direct_web, run, walsh_no_waiting):
    names = [f"/{number}" for number in range(4)]
    web = direct_web(Site("a.example", "User-agent: *\nDisallow: /\n", dict.fromkeys(names, PAGE)))
    result = run(web, "pages", *(f"http://a.example{name}" for name in names), DOWNLOAD_DELAY=0)
    assert sorted(paths(web.log)) == [f"a.example{name}" for name in names]
    assert len(result.items) == len(names)


def test_outside_of_tests_that_switch_is_refused(direct_web, run, walsh_no_waiting, monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    web = direct_web(Site("a.example", "", {"/": PAGE}))
    assert "WALSH_NO_WAITING" in refusal(run(web, "pages", "http://a.example/"))
    assert web.log == []
