"""A project's own crawl: one line and a User-Agent, and all else is the project's (decision 47)."""

import stat
from contextlib import closing

import pytest

from tests.helpers.sites import ADDON, LIST_URL, blocklist, paths, refusal, write_project
from walsh_scrapy.crawl.job import FILE
from walsh_scrapy.state import State
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Certificate, Reply, Site, redirect

AGENT = "Example-Bot/1.0 (+https://bot.example/)"
PROJECT = ADDON | {"USER_AGENT": AGENT}
PAGE = Reply("<title>x</title>", content_type="text/html")
ROBOTS = """\
User-agent: example-bot
Disallow: /private
Crawl-delay: 2

User-agent: *
Disallow: /
"""

SPIDERS = """
from scrapy import FormRequest, Request, Spider
from scrapy.exceptions import CloseSpider

from tests.helpers.theirs import Urls
from walsh_scrapy import SourcesSpider


class Pages(Urls):
    name = "pages"
    urls = "http://a.example/ http://a.example/private"


class WithSources(Pages):
    name = "sources"
    sources = ["a", "b"]


class Declared(SourcesSpider):
    name = "declared"
    kind = "feed"

    async def parse(self, response, source):
        yield {"url": response.url}


class Secret(Urls):
    name = "secret"
    http_user, http_pass, http_auth_domain = "me", "s3cret-http", None
    proxy = ""

    def request(self, url):
        meta = {"proxy": self.proxy} if self.proxy else {}
        cookies = {"session": "s3cret-cookie"}
        headers = {"Referer": "http://from.example/page"}
        return Request(url, headers=headers, cookies=cookies, meta=meta, errback=self.ended)


class Many(Urls):
    name = "many"

    async def start(self):
        for number in range(100_000):
            self.crawler.stats.inc_value("taken")
            yield Request(f"http://h{number}.example/", errback=self.ended)

    def parse(self, response):
        raise CloseSpider

    def ended(self, failure):
        raise CloseSpider


class Hopping(Urls):
    name = "hopping"
    custom_settings = {"COOKIES_ENABLED": False}  # the Cookie header below is sent as it is

    def request(self, url):
        own = {"Authorization": "Bearer s3cret", "Cookie": "a=s3cret"}
        return Request(url, headers=own, errback=self.ended)
"""


@pytest.fixture
def project(tmp_path, installed):
    return write_project(tmp_path / "project", PROJECT, spiders=SPIDERS)


@pytest.fixture
def web(direct_web):
    return direct_web(Site("a.example", ROBOTS, {"/": PAGE, "/private": PAGE}))


def test_one_line_and_a_user_agent_are_enough(web, crawl, project):
    result = crawl(web, "pages", project=project)
    assert paths(result.log) == ["a.example/robots.txt", "a.example/"]
    assert_polite(web.log, user_agent=AGENT, serial=False, crawl_delays={"a.example": 2})
    assert "WARNING" not in result.stderr
    assert "walsh-research" not in result.stderr.lower()


def test_sources_of_another_kind_declare_nothing(web, crawl, project):
    result = crawl(web, "sources", project=project)
    assert result.exit_code == 0, result.stderr
    assert paths(result.log) == ["a.example/robots.txt", "a.example/"]


def test_start_requests_are_taken_while_there_is_room(direct_web, crawl, project):
    """Plain Scrapy takes all of them before it handles the first response."""
    web = direct_web(Site("h0.example", "", {"/": PAGE}))
    result = crawl(web, "many", project=project)
    assert 0 < result.stats["taken"] < 2_200


def test_a_second_run_asks_whether_robots_txt_has_changed(simulated, tmp_path):
    """The log says so too, although an own crawl has no ConditionalMiddleware."""
    project = write_project(tmp_path / "theirs", PROJECT, spiders=SPIDERS)
    robots = Reply("User-agent: *\nDisallow: /private\n", etag='"1"')
    state = f"sqlite:///{tmp_path}/state.sqlite3"
    runs = simulated(
        Site("a.example", robots, {"/": PAGE}),
        spider="pages",
        project=project,
        arguments={"urls": "http://a.example/"},
        settings={"WALSH_STATE_URL": state},
        starts=(0.0, 2 * 86_400.0),
    )
    asked = [hit for run in runs for hit in run.log if hit.path == "/robots.txt"]
    assert [hit.header("If-None-Match") for hit in asked] == [None, '"1"']
    with closing(State(state)) as log:
        where = "url = 'http://a.example/robots.txt'"
        rows = list(log.rows("readable_requests", where=where, order_by="requested_at"))
    assert [bool(row["conditional"]) for row in rows] == [False, True]


@pytest.mark.parametrize(
    "command",
    [
        ["runspider", "theirs/spiders.py", "-a", "urls=http://a.example/"],
        ["shell", "-c", "response.status", "http://a.example/"],
        ["fetch", "http://a.example/"],
        ["parse", "--spider", "pages", "http://a.example/"],
    ],
    ids=lambda command: command[0],
)
def test_each_command_of_scrapy_crawls_politely(web, project, run_python, command):
    if command[0] == "runspider":
        one = SPIDERS.partition("class WithSources")[0]
        (project / "theirs" / "spiders.py").write_text(one)
    done = run_python("-m", "scrapy", *command, cwd=project, environment=web.environment)
    assert done.returncode == 0, done.stderr
    assert paths(web.log) == ["a.example/robots.txt", "a.example/"], done.stderr
    assert_polite(web.log, user_agent=AGENT, serial=False, crawl_delays={"a.example": 2})


def test_check_and_list_start_no_crawl_and_say_nothing(web, project, run_python):
    for command in ("check", "list"):
        done = run_python("-m", "scrapy", command, cwd=project, environment=web.environment)
        assert done.returncode == 0, done.stderr
    assert web.log == []


RUNNER = """
import asyncio
from scrapy.crawler import AsyncCrawlerProcess, AsyncCrawlerRunner, CrawlerProcess
from scrapy.utils.project import get_project_settings

settings = get_project_settings()
urls = {"urls": "http://a.example/"}
if KIND is CrawlerProcess or KIND is AsyncCrawlerProcess:
    process = KIND(settings)
    process.crawl("pages", **urls)
    process.crawl("declared", sources="feeds.txt")
    process.start()
else:
    from scrapy.utils.reactor import install_reactor

    install_reactor(settings["TWISTED_REACTOR"])
    from twisted.internet import reactor

    async def run():
        runner = KIND(settings)
        await asyncio.gather(
            runner.crawl("pages", **urls), runner.crawl("declared", sources="feeds.txt")
        )
        reactor.stop()

    reactor.callWhenRunning(lambda: asyncio.ensure_future(run()))
    reactor.run()
"""


@pytest.mark.parametrize("kind", ["CrawlerProcess", "AsyncCrawlerProcess", "AsyncCrawlerRunner"])
def test_crawls_of_both_kinds_run_in_one_process(direct_web, project, run_python, kind):
    feed = Reply("<rss><channel/></rss>", content_type="application/rss+xml")
    web = direct_web(
        Site("a.example", ROBOTS, {"/": PAGE}), Site("blog.example", "", {"/feed": feed})
    )
    (project / "feeds.txt").write_text("http://blog.example/feed\n")
    script = RUNNER.replace("KIND", kind)
    done = run_python("-c", script, cwd=project, environment=web.environment)
    assert done.returncode == 0, done.stderr
    hits = {"a.example": ["/", "/robots.txt"], "blog.example": ["/feed", "/robots.txt"]}
    expected = [f"{host}{path}" for host, found in hits.items() for path in found]
    assert sorted(paths(web.log)) == expected, done.stderr
    assert_polite(web.log, user_agent=AGENT, serial=False, crawl_delays={"a.example": 2})


@pytest.mark.parametrize("command", ["status", "hosts", "runs", "sources"])
def test_a_command_without_a_crawl_checks_no_bound_of_one(web, crawl, project, run_python, command):
    """Of a project with less than a second between requests, which only declared crawls need."""
    settings = {"WALSH_MIN_INTERVAL": 0.25}
    crawl(web, "pages", project=project, settings=settings)
    state = f"WALSH_STATE_URL=sqlite:///{crawl.folder}/walsh.sqlite3"
    options = ("-s", state, "-s", "WALSH_MIN_INTERVAL=0.25")
    done = run_python("-m", "walsh_scrapy", command, *options, cwd=project)
    assert "MIN_INTERVAL" not in done.stderr
    assert done.returncode in (0, 1), done.stderr
    assert "walsh-research" not in (done.stdout + done.stderr).lower()


def test_a_project_without_a_name_is_told_one_line(web, crawl, project):
    write_project(project, ADDON | {"BOT_NAME": "theirs"}, spiders=SPIDERS)
    told = refusal(crawl(web, "pages", project=project))
    assert 'USER_AGENT = "theirs/1.0 (+https://your.page.example/)"' in told
    assert "walsh-research" not in told.lower()
    assert web.log == []


# Nothing leaks.

#: The headers of a request for robots.txt or the blocklist, and those of every HTTP request.
CLOSED = {
    "accept",
    "accept-encoding",
    "connection",
    "host",
    "if-modified-since",
    "if-none-match",
    "proxy-authorization",
    "user-agent",
}
SECRETS = {
    "DEFAULT_REQUEST_HEADERS": {"X-Api-Key": "s3cret-key", "Accept": "*/*"},
    "WALSH_BLOCKLIST_URL": LIST_URL,
}


def with_cookie(reply):
    """A reply that sets a cookie, with a token for every visitor."""
    return Reply(reply.body, headers={"Set-Cookie": "seen=s3cret-set"}, content_type="text/plain")


def names_of(hit):
    return {name.lower() for name, _ in hit.headers}


def test_robots_txt_and_the_blocklist_get_no_secret(direct_web, crawl, project):
    robots = with_cookie(Reply("User-agent: *\nCrawl-delay: 1\n"))
    web = direct_web(
        Site("operator.example", robots, {"/blocklist.json": blocklist("z.example")}),
        Site("a.example", robots, {"/": PAGE, "/2": PAGE}),
    )
    write_project(project, PROJECT | SECRETS, spiders=SPIDERS)
    urls = {"urls": "http://a.example/ http://a.example/2"}
    result = crawl(web, "secret", project=project, arguments=urls)
    ours = [hit for hit in web.log if hit.path in ("/robots.txt", "/blocklist.json")]
    pages = [hit for hit in web.log if hit not in ours]
    assert {hit.path for hit in ours} == {"/robots.txt", "/blocklist.json"}, result.stderr
    assert {hit.path: names_of(hit) - CLOSED for hit in ours if names_of(hit) - CLOSED} == {}
    assert [hit.path for hit in pages] == ["/", "/2"]
    for page in pages:
        assert page.header("Authorization")
        assert page.header("X-Api-Key") == "s3cret-key"
        assert page.header("Cookie") == "session=s3cret-cookie", "and none of robots.txt"
        assert page.header("Referer").endswith("/page")


@pytest.mark.parametrize(
    ("first", "location", "kept"),
    [
        ("http://a.example/", "http://a.example/2", {"Cookie", "Authorization"}),
        ("http://a.example/", "http://b.example/", set()),
        ("https://tls.example/", "http://tls.example/", set()),
    ],
)
def test_a_redirect_takes_credentials_only_where_scrapy_does(
    direct_web, crawl, project, first, location, kept
):
    def front(hit):
        return redirect(location) if hit.url == first else PAGE

    web = direct_web(
        Site("a.example", "", {"/": front, "/2": PAGE}),
        Site("b.example", "", {"/": PAGE}),
        Site("tls.example", "", {"/": front}, tls=Certificate.GOOD),
    )
    result = crawl(web, "hopping", project=project, arguments={"urls": first})
    last = [hit for hit in web.log if hit.path != "/robots.txt"][-1]
    assert last.url == location, result.stderr
    sent = {name for name in ("Cookie", "Authorization") if last.header(name)}
    assert sent == kept


def test_no_password_stands_in_what_a_crawl_writes(loopback_web, crawl, project, run_python):
    web = loopback_web(Site("a.example", ROBOTS, {"/": PAGE}))
    gateway = web.environment["http_proxy"].replace("http://", "http://me:s3cret-proxy@")
    job = project / "job"
    write_project(project, PROJECT | SECRETS | {"WALSH_BLOCKLIST_URL": ""}, spiders=SPIDERS)
    urls = "http://a.example/ http://a.example/private http://gone.example/"
    arguments = {"urls": urls, "proxy": gateway}
    settings = {"JOBDIR": job, "WALSH_MAX_RETRIES": 0}
    result = crawl(web, "secret", project=project, settings=settings, arguments=arguments)
    assert paths(web.log, "a.example") == ["a.example/robots.txt", "a.example/"], result.stderr
    assert {hit.header("Proxy-Authorization") is None for hit in web.log} == {False}
    state = crawl.folder / "walsh.sqlite3"
    options = ("-s", f"WALSH_STATE_URL=sqlite:///{state}")
    report = crawl.folder / "report.html"
    for command in (["why", "a.example"], ["why", "gone.example"], ["report", "-o", report]):
        done = run_python("-m", "walsh_scrapy", *map(str, command), *options, cwd=project)
        assert "s3cret" not in done.stdout + done.stderr
    written = [state, report, *result.folder.iterdir()]
    texts = {path.name: path.read_bytes() for path in written if path.is_file()}
    assert [name for name, text in texts.items() if b"s3cret" in text] == []
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in job.glob(f"{FILE}*")}
    assert modes
    assert set(modes.values()) == {0o600}


def test_what_a_stopped_job_leaves_to_scrapy_is_closed_too(crawl, project, direct_web):
    late = Reply("x", headers={"Retry-After": "900"}, status=429)
    web = direct_web(Site("a.example", "", {"/": late, "/2": PAGE}))
    job = project / "job"
    settings = {"JOBDIR": job, "WALSH_MAX_RETRIES": 0}
    urls = {"urls": "http://a.example/ http://a.example/2"}
    crawl(web, "pages", project=project, settings=settings, arguments=urls)
    assert stat.S_IMODE((job / "requests.queue").stat().st_mode) == 0o700


def test_the_file_of_an_older_job_is_closed_too(web, crawl, project):
    job = project / "job"
    job.mkdir()
    (job / FILE).touch(0o644)
    (job / FILE).chmod(0o644)
    crawl(web, "pages", project=project, settings={"JOBDIR": job})
    assert stat.S_IMODE((job / FILE).stat().st_mode) == 0o600
