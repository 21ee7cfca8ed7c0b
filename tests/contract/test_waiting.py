"""A run waits for nothing that it only denies or defers (decision 7).

Real crawls in simulated time. Each case has a reason why most of its requests are not sent.
"""

import json
import re
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from scrapy import Request, Spider

from tests.helpers.sites import IDENTITY, feed
from walsh_scrapy.crawl.hosts.queue import OWNED_HOST_TIMEOUT_SECONDS
from walsh_scrapy.policy.pacing import RECHECK_SECONDS
from walsh_scrapy.testing.simulation import DAY, simulate
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect
from walsh_scrapy.wire.endpoints import ConnectionRefused, NoAnswer

HOUR = 3600.0
#: Seconds from the last request until the end of a run.
MAX_IDLE_SECONDS = 5.0
#: A request is sent back once if its host is not ready, and then waits in PacingMiddleware.
MAX_HAND_OUTS = 3
PATHS = [f"f{number}" for number in range(12)]
A = "http://a.example"
REFUSED = Reply(status=503)
REFUSED_FOR_LONG = Reply(status=503, headers={"Retry-After": "7200"})
LATER = Reply(status=302, headers={"Location": f"{A}/f1", "Retry-After": "600"})
SLOW = "User-agent: *\nCrawl-delay: 300\n"
#: Every crawl begins at 00:00, unless its case says otherwise.
CLOSED = f"{SLOW}Visit-time: 0600-0845\n"


@dataclass
class Case:
    """The crawls of some sites, and the pages that the last one of them requests.

    Without sources the spider requests the pages of a.example. ``problem`` is the name of an
    extension of `tests.helpers.problems` that needs the host a.example.
    """

    sites: list[Site]
    sources: list[str | dict[str, str]] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    pages: int = 0
    starts: tuple[float, ...] = (0.0,)
    problem: str = ""


def host(robots, name="a.example", page=None):
    pages = {f"/{path}": page or feed(host=name.partition(":")[0]) for path in PATHS}
    return Site(name, robots, pages)


def urls(origin):
    return [f"{origin}/{path}" for path in PATHS]


def delayed(origin):
    """Sources that declare a delay which is waited for."""
    return [{"url": url, "delay": "PT5M"} for url in urls(origin)]


def fail(error, hit):
    raise error(hit.host, "no connection")


def by_scheme(plain, secure):
    return partial(_by_scheme, plain, secure)


def _by_scheme(plain, secure, hit):
    return secure if hit.scheme == "https" else plain


DEAD = partial(fail, NoAnswer)
CLOSED_PORT = partial(fail, ConnectionRefused)

CASES = {
    "robots.txt refused": Case([host(REFUSED)], urls(A), IDENTITY),
    "robots.txt refused with Retry-After": Case(
        [host(Reply(status=429, headers={"Retry-After": "600"}))],
        urls(A),
        IDENTITY | {"WALSH_MAX_RETRIES": 1},
    ),
    "robots.txt refused for long": Case([host(REFUSED_FOR_LONG)], urls(A), IDENTITY),
    "robots.txt refused half an hour ago": Case(
        [host(REFUSED)], urls(A), IDENTITY, starts=(0.0, HOUR / 2)
    ),
    "robots.txt refused, so all is denied": Case(
        [host(REFUSED)], urls(A), {"WALSH_ROBOTS_UNREACHABLE": "disallow"}
    ),
    "robots.txt breaks off": Case([host(Reply(fault=Fault.RESET))], urls(A), IDENTITY),
    "robots.txt too slow": Case([host(Reply("", delay=40.0))], delayed(A), IDENTITY),
    "robots.txt leads to a dead host": Case(
        [host(redirect("http://dead.example/robots.txt")), Site("dead.example", DEAD)],
        delayed(A),
        IDENTITY,
    ),
    "disallowed": Case([host(f"{SLOW}Disallow: /\n")], urls(A)),
    "page on hold for long": Case([host(SLOW, page=REFUSED_FOR_LONG)], urls(A), pages=1),
    "host on hold since the last run": Case(
        [host("", page=REFUSED_FOR_LONG)], urls(A), starts=(0.0, HOUR)
    ),
    "pages refused": Case([host("", page=REFUSED)], urls(A), pages=5),
    "pages forbidden": Case([host(SLOW, page=Reply(status=403))], urls(A), pages=3),
    "pages time out": Case([host(SLOW, page=Reply(delay=40.0))], urls(A), pages=2),
    "host dead": Case([host(DEAD, page=DEAD)], delayed(A)),
    "host dead again": Case([host(DEAD, page=DEAD)], delayed(A), starts=(0.0, DAY)),
    "host dead after robots.txt": Case([host(SLOW, page=DEAD)], delayed(A), pages=1),
    "port closed": Case([host(CLOSED_PORT, page=CLOSED_PORT)], delayed(A)),
    "port closed after robots.txt": Case([host(SLOW, page=CLOSED_PORT)], urls(A), pages=1),
    "long Crawl-delay": Case([host("User-agent: *\nCrawl-delay: 1000\n")], urls(A)),
    "Visit-time": Case([host("User-agent: *\nVisit-time: 0600-0845\n")], urls(A)),
    "Visit-time after a Crawl-delay": Case([host(CLOSED)], urls(A)),
    "Visit-time over before the Crawl-delay": Case([host(CLOSED)], urls(A), starts=(8.7 * HOUR,)),
    "robots.txt of http refused": Case(
        [host(by_scheme(REFUSED, Reply(SLOW)))],
        [*urls(A), "https://a.example/f1"],
        IDENTITY,
        pages=1,
    ),
    "robots.txt of https refused": Case(
        [host(by_scheme(Reply(SLOW), REFUSED))],
        [*urls("https://a.example"), f"{A}/f1"],
        IDENTITY,
        pages=1,
    ),
    "another port closed": Case(
        [host(CLOSED_PORT, "a.example:8080", CLOSED_PORT), host(SLOW)],
        [*urls(f"{A}:8080"), f"{A}/f1"],
        pages=1,
    ),
    "a host of the domain dead": Case(
        [host(DEAD, "a.blog.example", DEAD), host(SLOW, "b.blog.example")],
        [*urls("http://a.blog.example"), "http://b.blog.example/f1"],
        {"WALSH_PACE_BY": "domain"},
        pages=1,
    ),
    "robots.txt of a host of the domain refused": Case(
        [host(REFUSED, "a.blog.example"), host(SLOW, "b.blog.example")],
        [*urls("http://a.blog.example"), "http://b.blog.example/f1"],
        IDENTITY | {"WALSH_PACE_BY": "domain"},
        pages=1,
    ),
    "a host of the domain refuses": Case(
        [host(SLOW, "a.blog.example", REFUSED), host(SLOW, "b.blog.example")],
        [*urls("http://a.blog.example"), "http://b.blog.example/f1"],
        {"WALSH_PACE_BY": "domain", "WALSH_MAX_RETRIES": 1},
        pages=3,
    ),
    "visit too long": Case(
        [
            Site(
                "a.example",
                SLOW,
                {
                    "/f1": replace(redirect("/f2"), delay=29.8),
                    "/f2": replace(redirect("/f3"), delay=29.8),
                    "/f3": feed(),
                },
            )
        ],
        [f"{A}/f1"],
        pages=2,
    ),
    "redirect to a host that is given up": Case(
        [
            Site("b.example", "", {"/f1": LATER}),
            host("", page=Reply(status=403)),
        ],
        ["http://b.example/f1", *urls(A)],
        pages=4,
    ),
    "blocklist on hold for long": Case(
        [
            host(SLOW),
            Site("operator.example", "", {"/list": REFUSED_FOR_LONG}),
        ],
        [f"{A}/f1", f"{A}/f2"],
        {"WALSH_BLOCKLIST_URL": "http://operator.example/list"},
        pages=3,
    ),
    "given up by another worker": Case([host(SLOW)], urls(A), problem="DeferredByAnother"),
    "own crawl, robots.txt refused": Case([host(REFUSED)]),
    "own crawl, disallowed": Case([host(f"{SLOW}Disallow: /\n")]),
    "own crawl, page on hold for long": Case([host(SLOW, page=REFUSED_FOR_LONG)], pages=1),
    "own crawl, pages refused": Case([host("", page=REFUSED)], pages=5),
    "own crawl, Visit-time": Case([host(CLOSED)]),
    "own crawl, Visit-time over before the Crawl-delay": Case([host(CLOSED)], starts=(8.7 * HOUR,)),
    "own crawl, given up by another worker": Case([host(SLOW)], problem="DeferredByAnother"),
}


class Follows(Spider):
    """Requests pages that are no declared sources."""

    name = "follows"

    async def start(self):
        for url in urls(A):
            yield Request(url)

    def parse(self, response):
        yield {"page": response.url}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def crawl_of(tmp_path_factory, pytestconfig, crawl_launcher):
    """Return a function that returns the last crawl of a case."""
    return partial(last_crawl, tmp_path_factory, pytestconfig.rootpath, crawl_launcher)


@pytest.fixture(scope="module")
def run(case, crawl_of):
    return crawl_of(case)


def last_crawl(folders, project, launcher, case):
    problems = {f"tests.helpers.problems.{name}": 0 for name in ("HandOuts", case.problem) if name}
    settings = {"EXTENSIONS": json.dumps(problems), "HOST": "a.example"}
    options = {"sources": case.sources}
    if not case.sources:
        settings |= IDENTITY | {"SPIDER_MODULES": [__name__]}
        options = {"spider": Follows.name}
    return simulate(
        *case.sites,
        starts=case.starts,
        folder=folders.mktemp("waiting"),
        settings=settings | case.settings,
        project=project,
        launcher=launcher,
        **options,
    )[-1]


def test_a_run_ends_soon_after_its_last_request(run):
    last = max((hit.ended for hit in run.log), default=run.stats["began_at"])
    assert run.stats["ended_at"] - last <= MAX_IDLE_SECONDS


def test_what_is_not_sent_is_handed_out_a_few_times(run):
    assert run.stats.get("hand_outs", 0) <= MAX_HAND_OUTS


def test_what_may_be_sent_is_sent(run, case):
    assert len([hit for hit in run.log if hit.path != "/robots.txt"]) == case.pages


def test_the_progress_announces_only_what_is_sent(run):
    for at, text in run.stats["announced"]:
        name = re.search(r"waiting for (the blocklist|[^ :,]+)", text)[1]
        name = "operator.example" if name == "the blocklist" else name
        assert any(name in hit.host for hit in run.log if hit.started >= at), (at, text)


def test_each_request_waits_once_for_another_worker(crawl_of):
    """The other worker may let the host go at any time."""
    run = crawl_of(Case([host(SLOW)], problem="OwnedByAnother"))
    assert run.log == []
    assert run.seconds <= len(PATHS) * (OWNED_HOST_TIMEOUT_SECONDS + 2 * RECHECK_SECONDS)
    assert run.stats["walsh/requests/deferred"] == len(PATHS)
