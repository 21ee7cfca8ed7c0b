"""R4 on the wire: one request at a time, spacing for each host, and no delay for the others."""

import math
import os
import subprocess
import time
from collections import Counter
from contextlib import closing
from itertools import pairwise
from threading import Event

import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.helpers import HANG_SECONDS
from tests.helpers.problems import ShortBeats
from tests.helpers.sites import (
    LIST_URL,
    blocklist,
    feed,
    feeds,
    judge,
    paths,
    rows_of,
    site,
    trouble,
)
from walsh_scrapy.feeds.attest import attest
from walsh_scrapy.policy.pacing import MARGIN
from walsh_scrapy.state import State
from walsh_scrapy.state.evidence import MAX_IDLE_RUN_SECONDS
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.web import Reply, Site, redirect

#: The longest delay that robots.txt, a server or the operator asks for, by host.
PAUSES = {
    "slow.example": 2.0,
    "rate.example": 3.0,
    "delayed.example": 2.5,
    "old.example": 2.0,
    "new.example": 2.0,
}


@pytest.mark.parametrize("robots", ["", "User-agent: *\nCrawl-delay: 10\n"])
def test_a_delay_of_two_days_lets_pages_through(simulated, url, robots):
    """A page goes first if the copy of robots.txt was not used before; it expires after a day."""
    with closing(State(url)) as state:
        state.hosts.set_delay("blog.example", 2 * DAY, "they asked for it")
    runs = simulated(
        site("blog.example", robots),
        sources=feeds("blog"),
        settings={"WALSH_STATE_URL": url},
        starts=[day * DAY for day in range(14)],
    )
    robots_or_page = ["blog.example/robots.txt", "blog.example/feed"]
    assert [path for run in runs for path in paths(run.log)] == (4 * robots_or_page)[:7]


def test_a_source_delay_of_half_a_day_lets_pages_through(simulated):
    runs = simulated(
        site("blog.example"),
        sources=[{"url": "http://blog.example/feed", "delay": "PT12H"}],
        starts=[0.0, DAY + 3600.0],
    )
    assert [paths(run.log) for run in runs] == [["blog.example/robots.txt"], ["blog.example/feed"]]


def test_the_longest_delay_counts_whoever_asks_for_it(direct_web, crawl):
    rate = "User-agent: *\nRequest-rate: 1/1s\nRequest-rate: 20/1m\n"
    busy = Reply("a,b", 429, content_type="text/csv", headers={"Retry-After": "3"})
    web = direct_web(
        site("slow.example", "User-agent: *\nCrawl-delay: 2\nCrawl-delay: 1.5\n", other=feed()),
        site("quick.example:8080"),
        site("quick.example", "User-agent: *\nCrawl-delay: 0.2\n", other=feed()),
        site("rate.example", rate, other=feed()),
        site("delayed.example", "User-agent: *\nCrawl-delay: 0.1\n"),
        site("old.example", feed=redirect("http://new.example/feed")),
        site("new.example"),
        # An answer that is dropped at its headers counts by its status.
        site("busy.example", feed=[busy, feed()]),
        # A server that answers slowly is asked less often.
        site("late.example", feed=feed(delay=2.0), other=feed(delay=2.0)),
    )
    hosts = ("slow", "quick", "rate", "late")
    sources = [
        *feeds(*hosts, "busy"),
        *feeds(*hosts, path="other"),
        "http://quick.example:8080/feed",
        {"url": "http://delayed.example/feed", "delay": 1.1},
        {"url": "http://delayed.example/", "kind": "llms", "delay": "PT2.5S"},
        {"url": "http://old.example/feed", "delay": 2},
    ]
    result = crawl(web, sources=sources)
    judge(result, crawl_delays=PAUSES)
    _, first, second = (hit for hit in result.log if hit.host == "late.example")
    assert second.started - first.ended >= 2.0
    assert result.stats["walsh/sources/fetched"] == 12


# R4 by registrable domain: everything is the domain's (decision 5).


def test_paced_by_domain_two_crawls_keep_the_delay_of_a_domain(direct_web, crawl, tmp_path):
    """Two crawls on one state: only the state can prevent that both ask at the same time."""
    cache = tmp_path / "cache"
    cache.mkdir()
    a, b, c = hosts = ("a.site-one.co.uk", "b.site-one.co.uk", "c.site-two.co.uk")
    robots, slow = "User-agent: *\nCrawl-delay: 2\n", feed(delay=0.3)
    web = direct_web(site(a, robots, feed=slow), site(b, robots, feed=slow), site(c))
    options = {
        "settings": {"WALSH_PACE_BY": "domain"},
        "environment": dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TLDEXTRACT_CACHE"), str(cache)),
    }
    shares = [[f"http://{a}/feed", f"http://{c}/feed"], [f"http://{b}/feed"]]
    running = [crawl.start(web, sources=share, **options) for share in shares]
    results = [process.wait() for process in running]

    def domain_of(host):
        """Right for these hosts; the judge has no list of suffixes."""
        return host.partition(".")[2]

    assert [result.exit_code for result in results] == [0, 0]
    assert_polite(web.log, serial=False, pace_by=domain_of, crawl_delays=web.crawl_delays)
    assert web.most_open_connections <= len(running)
    both = ("robots.txt", "feed")
    assert sorted(paths(web.log)) == sorted(f"{host}/{page}" for host in hosts for page in both), (
        "a robots.txt for each host, and nobody was asked for a list of public suffixes"
    )
    assert list(cache.iterdir()) == []


# R4 for several processes on one state: every host sees one polite crawler, also if one dies.
#
# All is read from the servers' log, except until when a dead process had its host.

SCHEMA_URL = "http://operator.example/schema.json"
CRAWLS = ("one", "two", "three")
TIMEOUT = 6
#: Crawls in processes of their own, which share no imports.
ORDINARY = {"launcher": subprocess.Popen}


def fetched(log):
    """The targets that were answered in full, in order, with repetitions."""
    complete = [hit for hit in log if hit.complete and hit.status == 200]
    return sorted(hit.url for hit in complete if hit.path != "/robots.txt")


def in_state(crawl, statement):
    """Execute a statement on the state, and return the one value it asks for, if any."""
    return (rows_of(crawl, statement) or [(None,)])[0][0]


def in_flight_until(host, crawl):
    """Until when a request to a host may last, in epoch seconds, as the state has it."""
    return in_state(crawl, f"SELECT in_flight_until FROM hosts WHERE host = '{host}'")


def breaches(crawl):
    """What `walsh attest` finds in the record, by the times that the crawls wrote themselves."""
    with (
        closing(State(f"sqlite:///{crawl.folder / 'walsh.sqlite3'}")) as state,
        state.log() as record,
    ):
        attestation = attest(
            record, time.time() + MAX_IDLE_RUN_SECONDS
        )  # no killed run may go on by then
    assert attestation.requests > 0
    return [finding for row in attestation.rows for finding in row["findings"]]


def test_three_crawls_on_one_state_share_hosts_and_keep_delays(direct_web, crawl):
    """Each crawl has its own feeds on all hosts, and all share one feed on every host."""

    def own(_hit):
        """Let the first process wait for the others."""
        seen = {hit.path for hit in web.log}
        return feed(delay=0.05 if seen >= {f"/{name}" for name in CRAWLS} else 2.0)

    plain = [f"h{number}.example" for number in range(8)]
    busy = [Reply(status=429, headers={"Retry-After": "2"}), feed()]
    web = direct_web(
        *(site(host, **dict.fromkeys(CRAWLS, own)) for host in plain),
        site("busy.example", feed=busy, two=feed(), three=feed()),
        site("slow.example", "User-agent: *\nCrawl-delay: 2\n", one=feed()),
    )
    urls = {f"http://{served.host}{path}" for served in web.sites for path in served.pages}
    shared = {url for url in urls if url.endswith("/feed")}
    running = [
        crawl.start(
            web,
            sources=sorted(shared | {url for url in urls if url.endswith(f"/{name}")}),
            **ORDINARY,
        )
        for name in CRAWLS
    ]
    results = [process.wait() for process in running]

    assert [result.exit_code for result in results] == [0, 0, 0]
    assert all("not reached" not in result.stderr for result in results)
    assert_polite(web.log, serial=False, crawl_delays=web.crawl_delays)
    assert web.most_open_connections <= len(CRAWLS), "one of each process"
    assert fetched(web.log) == sorted(urls), "each was fetched, by one of them, once"
    assert paths(hit for hit in web.log if hit.status == 429) == ["busy.example/feed"]
    assert in_state(crawl, "SELECT max(started_at) < min(ended_at) FROM runs"), "they overlap"
    assert breaches(crawl) == []


@pytest.mark.long
def test_the_host_of_a_killed_crawl_waits_for_its_request(direct_web, crawl):
    """It is killed during a request; others on its hosts know only how long that may last."""
    hosts = ("left.example", "other.example")
    pages = {"two": feed(), "three": feed()}
    web = direct_web(
        site("left.example", one=feed(delay=0.75 * TIMEOUT), **pages),
        site("other.example", one=feed(), **pages),
    )
    settings = {"DOWNLOAD_TIMEOUT": TIMEOUT, "RETRY_TIMES": 0, **trouble("ShortBeats")}
    options = {"settings": settings}
    running = {
        name: crawl.start(web, sources=[f"http://{host}/{name}" for host in hosts], **options)
        for name in CRAWLS
    }
    killed = running["one"].kill_when(lambda log: "left.example/one" in paths(log))
    until = in_flight_until("left.example", crawl)
    results = [running[name].wait() for name in ("two", "three")]
    last = crawl(web, sources=[f"http://{host}/one" for host in hosts], **options)

    assert killed.exit_code < 0
    assert [result.exit_code for result in (*results, last)] == [0, 0, 0]
    assert_polite(web.log, serial=False)
    assert web.most_open_connections <= len(CRAWLS)
    at_left = [hit for hit in web.log if hit.host == "left.example"]
    cut, after = next(pair for pair in pairwise(at_left) if not pair[0].complete)
    assert cut.path == "/one"
    assert after.wall >= until
    assert cut.wall <= until <= cut.wall + TIMEOUT + MARGIN
    assert after.started - cut.started < TIMEOUT + MARGIN + 1.0 + HANG_SECONDS
    assert fetched(web.log) == sorted(f"http://{host}/{name}" for host in hosts for name in CRAWLS)
    assert breaches(crawl) == [], "a run that was killed is no breach"
    unknown = rows_of(crawl, "SELECT url, run FROM requests WHERE duration IS NULL")
    assert "http://left.example/one" in [url for url, _ in unknown]
    assert len({run for _, run in unknown}) == 1, "an end is written with the next transaction"


def test_crawl_delay_counts_from_the_request_of_a_killed_crawl(direct_web, crawl):
    """The end of its request is not known, so a Crawl-delay counts from its latest possible end."""
    crawl_delay = 6.0
    web = direct_web(
        site("slow.example", f"User-agent: *\nCrawl-delay: {crawl_delay}\n", feed=feed(delay=1.0))
    )
    settings = {"DOWNLOAD_TIMEOUT": TIMEOUT, **trouble("ShortBeats")}
    options = {"sources": ["http://slow.example/feed"], "settings": settings}
    crawl(web, sources=options["sources"], settings={"WALSH_MAX_WAIT": 0})
    in_state(crawl, "UPDATE hosts SET request_ended_at = request_ended_at - 60")
    killed = crawl(web, **options, kill_when=lambda log: log)
    until = in_flight_until("slow.example", crawl)
    last = crawl(web, **options)

    assert killed.exit_code < 0
    assert paths(web.log) == ["slow.example/robots.txt", *["slow.example/feed"] * 2]
    assert web.log[-1].wall >= until + crawl_delay
    assert len(last.items) == 2


@pytest.mark.long
@pytest.mark.empty
def test_crawls_that_start_together_request_the_blocklist_once(direct_web, crawl, postgresql_url):
    """It redirects, and its schema is read as well. One is not done with a host that both want."""
    moved = {"/list.json": blocklist("x.example", delay=0.5)}
    lists = {"/blocklist.json": redirect("http://mirror.example/list.json"), "/schema.json": "{}"}
    hosts = [f"h{number}.example" for number in range(30)]
    web = direct_web(
        Site("mirror.example", "", moved),
        Site("operator.example", "", lists),
        *(site(host, Reply("", delay=0.1)) for host in hosts),
    )
    settings = {
        "WALSH_BLOCKLIST_URL": LIST_URL,
        "WALSH_BLOCKLIST_SCHEMA_URL": SCHEMA_URL,
        "WALSH_STATE_URL": postgresql_url,
    }
    sources = [f"http://{host}/feed" for host in hosts]
    running = [crawl.start(web, sources=sources, settings=settings, **ORDINARY) for _ in "ab"]
    results = [process.wait(HANG_SECONDS) for process in running]
    assert [result.exit_code for result in results] == [0, 0]
    assert sum(len(result.items) for result in results) == 2 * len(hosts)
    assert_polite(web.log, serial=False)
    pages = {
        "mirror.example": ("list.json", "robots.txt"),
        "operator.example": ("blocklist.json", "robots.txt", "schema.json"),
        **dict.fromkeys(hosts, ("feed", "robots.txt")),
    }
    once = [f"{host}/{page}" for host, names in pages.items() for page in names]
    assert sorted(paths(web.log)) == sorted(once)


# R4 in a program that runs crawls in event loops of its own: never two at once.

GATES = "walsh_scrapy.downloadermiddlewares"
SCRIPT = f"""
import asyncio, logging, sys
from threading import Thread
from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerRunner

SETTINGS = {{
    "TWISTED_REACTOR_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "WALSH_USER_AGENT": "Example-Bot/1.0",
    "WALSH_UA_TOKEN": "Example-Bot",
    "WALSH_STATE_URL": sys.argv[1],
    "DOWNLOAD_HANDLERS": {{"http": "walsh_scrapy.downloadhandler.DownloadHandler"}},
    "DOWNLOADER_MIDDLEWARES": {{
        "{GATES}.robots.RobotsMiddleware": 100,
        "{GATES}.identity.IdentityMiddleware": 860,
        "{GATES}.pacing.PacingMiddleware": 890,
    }},
}}

class Listed(Spider):
    name = "listed"

    async def start(self):
        for host in self.hosts:
            yield Request(f"http://{{host}}.example/")

    async def parse(self, response):
        if self.beside:
            hosts, self.beside = self.beside, ""
            other = Thread(target=run, args=(hosts,))
            other.start()
            await asyncio.to_thread(other.join)
        self.logger.warning("read %s", response.url)

async def crawl(**arguments):
    try:
        await AsyncCrawlerRunner(SETTINGS).crawl(Listed, **arguments)
    except Exception as error:
        logging.critical("%s", error)

def run(hosts, beside=""):
    asyncio.run(crawl(hosts=hosts, beside=beside))

logging.basicConfig(level="WARNING", format="%(levelname)s %(message)s")
run("ab", beside="cd")
run("ab")
run("cd")
"""


WRONG = """
import asyncio, sys
from scrapy import Spider
from scrapy.crawler import AsyncCrawlerRunner, CrawlerRunner
from twisted.internet.asyncioreactor import install

class Any(Spider):
    name = "any"

async def crawl(kind):
    try:
        ended = kind({"ADDONS": {"walsh_scrapy.Addon": 500}, **eval(sys.argv[1])}).crawl(Any)
        await (ended if kind is AsyncCrawlerRunner else ended.asFuture(asyncio.get_running_loop()))
    except Exception as error:
        print(type(error).__name__, error)

async def both():
    for kind in (AsyncCrawlerRunner, CrawlerRunner):
        await crawl(kind)

install(asyncio.new_event_loop())
asyncio.get_event_loop().run_until_complete(both())
"""


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"WALSH_MAX_RETRIES": 0.5}, "BadSetting WALSH_MAX_RETRIES is 0.5, but"),
        ({"WALSH_STATE_URL": "sqlite:////proc/none/x"}, "StateError "),
    ],
)
def test_an_application_catches_what_is_wrong_with_its_settings(
    run_python, installed, settings, told
):
    given = {"WALSH_USER_AGENT": "Bot/1 (+https://bot.example/)", "WALSH_UA_TOKEN": "Bot"}
    given |= settings
    done = run_python("-c", WRONG, repr(given))
    assert [line.startswith(told) for line in done.stdout.splitlines()] == [True, True], done
    assert done.returncode == 0


def read(log):
    return sorted(line for line in log if line.startswith("WARNING read"))


def pages():
    return [Site(f"{host}.example", "", {"/": Reply("ok", delay=0.1)}) for host in "abcd"]


@pytest.mark.long
def test_a_crawl_beside_another_in_a_loop_of_its_own_is_refused(
    direct_web, tmp_path, run_python, installed
):
    """The crawls that come after it are not."""
    web = direct_web(*pages())
    path = os.pathsep.join((web.environment["PYTHONPATH"], os.environ["PYTHONPATH"]))
    environment = web.environment | {"PYTHONPATH": path}
    state = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    done = run_python("-c", SCRIPT, state, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    log = done.stderr.splitlines()
    (refused,) = [line for line in log if line.startswith("CRITICAL")]
    assert "another event loop" in refused
    assert len(read(log)) == 6
    judge(web, serial=True, user_agent="Example-Bot/1.0")


# Decision 41: crawls with the same settings on one state share its work, also if one is killed.

WORKERS = 3
SMALL = [f"h{number}.example" for number in range(24)]
LARGE = "platform.example"
#: Each host takes a while to begin, so that no worker has begun all of them before another comes.
ROBOTS = Reply("", delay=0.5)
#: Sources of the large host: a chain as long as a dead worker counts as living.
CHAIN = int(3 * ShortBeats.seconds)


@pytest.mark.long
def test_workers_share_sources_and_finish_those_of_a_killed_one(direct_web, crawl, postgresql_url):
    is_killed = Event()

    def page(_hit):
        """Give the other workers time to come, and the first one to be killed."""
        begun = sum(hit.path == "/feed" for hit in web.log)
        return feed(delay=2.0 if begun > WORKERS and not is_killed.is_set() else 0.0)

    def all_are_at_work(log):
        """Each worker has a request in flight, and the results of all other requests are written.

        A worker reads a document while it sends the next request, so the kill waits for that.
        """
        targets = [hit for hit in log if hit.path != "/robots.txt"]
        in_flight = [hit for hit in targets if not math.isfinite(hit.ended)]
        if len(in_flight) != WORKERS or any(hit.path != "/feed" for hit in in_flight):
            return False
        visited = text("SELECT count(*) FROM sources WHERE visited_at IS NOT NULL")
        with create_engine(postgresql_url, poolclass=NullPool).connect() as connection:
            return connection.scalar(visited) == len(targets) - WORKERS

    pages = {f"{number}": feed(delay=0.05) for number in range(CHAIN)}
    web = direct_web(site(LARGE, **pages), *(site(host, ROBOTS, feed=page) for host in SMALL))
    sources = sorted(f"http://{served.host}{path}" for served in web.sites for path in served.pages)
    settings = {"DOWNLOAD_TIMEOUT": 5, **trouble("ShortBeats"), "WALSH_STATE_URL": postgresql_url}

    def start():
        return crawl.start(web, sources=sources, settings=settings, launcher=subprocess.Popen)

    first, *others = [start() for _ in range(WORKERS)]
    dead = first.kill_when(all_are_at_work)
    is_killed.set()
    results = [process.wait(HANG_SECONDS) for process in others]

    assert dead.exit_code < 0
    assert [result.exit_code for result in results] == [0, 0]
    assert_polite(web.log, serial=False)
    assert web.most_open_connections <= WORKERS
    asked = Counter(hit.url for hit in web.log)
    again = {url: count for url, count in asked.items() if count > 1}
    assert asked.keys() >= set(sources)
    # What an exchange has shown is written with the next transaction of its host.
    targets = [url for url in again if not url.endswith("/robots.txt")]
    assert len(targets) <= 1, "only the request in flight is made again"
    assert not again or max(again.values()) == 2
    assert min(result.stats["walsh/sources/fetched"] for result in results) > 0, (
        "each has its share"
    )


def test_a_new_host_is_requested_at_once(simulated):
    names = ("a", "b", "c")
    (result,) = simulated(*(site(f"{name}.example") for name in names), sources=feeds(*names))
    began = [hit.started for hit in result.log if hit.path == "/robots.txt"]
    assert len(began) == len(names)
    assert max(began) - min(began) < 1.0
