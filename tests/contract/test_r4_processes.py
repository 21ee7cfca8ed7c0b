"""R4 for several processes on one state: every host sees one polite crawler, also if one dies.

All is read from the servers' log, except until when a dead process had its host.
"""

import subprocess
import time
from contextlib import closing
from itertools import pairwise

import pytest

from tests.helpers import LONGEST
from tests.helpers.sites import LIST_URL, blocklist, feed, paths, rows_of, site, trouble
from walsh_scrapy.policy.pacing import MARGIN
from walsh_scrapy.state import State
from walsh_scrapy.state.log import GOES_ON
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site, redirect
from walsh_scrapy.tools.attest import attest

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


def busy_until(host, crawl):
    """Until when a request to a host may last, in epoch seconds, as the state has it."""
    return in_state(crawl, f"SELECT busy_until FROM hosts WHERE host = '{host}'")


def breaches(crawl):
    """What `scrapy attest` finds in the record, by the times that the crawls wrote themselves."""
    with (
        closing(State(f"sqlite:///{crawl.folder / 'walsh.sqlite3'}")) as state,
        state.log() as record,
    ):
        attestation = attest(record, time.time() + GOES_ON)  # no killed run may go on by then
    assert attestation["checklist"][0]["shown"] > 0
    return [finding for row in attestation["checklist"] for finding in row["findings"]]


def test_three_crawls_on_one_state_share_the_work_and_keep_every_spacing(direct_web, crawl):
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
    urls = {f"http://{each.host}{path}" for each in web.sites for path in each.pages}
    shared = {url for url in urls if url.endswith("/feed")}
    running = [
        crawl.start(
            web,
            sources=sorted(shared | {url for url in urls if url.endswith(f"/{name}")}),
            **ORDINARY,
        )
        for name in CRAWLS
    ]
    results = [each.wait() for each in running]

    assert [result.exit_code for result in results] == [0, 0, 0]
    assert all("not reached" not in result.stderr for result in results)
    assert_polite(web.log, serial=False, crawl_delays=web.crawl_delays)
    assert web.most_open_connections <= len(CRAWLS), "one of each process"
    assert fetched(web.log) == sorted(urls), "each was fetched, by one of them, once"
    assert paths(hit for hit in web.log if hit.status == 429) == ["busy.example/feed"]
    assert in_state(crawl, "SELECT max(begun) < min(ended) FROM runs"), "all at the same time"
    assert breaches(crawl) == []


@pytest.mark.long
def test_the_host_of_a_killed_crawl_waits_until_its_request_has_ended(direct_web, crawl):
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
    until = busy_until("left.example", crawl)
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
    assert after.started - cut.started < TIMEOUT + MARGIN + 1.0 + LONGEST
    assert fetched(web.log) == sorted(f"http://{host}/{name}" for host in hosts for name in CRAWLS)
    assert breaches(crawl) == [], "a run that was killed is no breach"
    unknown = rows_of(crawl, "SELECT url, run FROM requests WHERE seconds IS NULL")
    assert "http://left.example/one" in [url for url, _ in unknown]
    assert len({run for _, run in unknown}) == 1, "an end is written with the next transaction"


def test_the_last_request_of_a_killed_crawl_counts_as_an_exchange(direct_web, crawl):
    """The end of its request is not known, so a Crawl-delay counts from its latest possible end."""
    crawl_delay = 6.0
    web = direct_web(
        site("slow.example", f"User-agent: *\nCrawl-delay: {crawl_delay}\n", feed=feed(delay=1.0))
    )
    settings = {"DOWNLOAD_TIMEOUT": TIMEOUT, **trouble("ShortBeats")}
    options = {"sources": ["http://slow.example/feed"], "settings": settings}
    crawl(web, sources=options["sources"], settings={"WALSH_MAX_WAIT": 0})
    in_state(crawl, "UPDATE hosts SET ended = ended - 60")
    killed = crawl(web, **options, kill_when=lambda log: log)
    until = busy_until("slow.example", crawl)
    last = crawl(web, **options)

    assert killed.exit_code < 0
    assert paths(web.log) == ["slow.example/robots.txt", *["slow.example/feed"] * 2]
    assert web.log[-1].wall >= until + crawl_delay
    assert len(last.items) == 2


def test_a_crawl_delay_that_one_crawl_reads_holds_for_the_robots_txt_of_another(direct_web, crawl):
    text = "User-agent: *\nCrawl-delay: 5\n"
    robots = [Reply(text, delay=3.0), Reply(status=503), Reply(text)]
    web = direct_web(Site("slow.example", "", {"/robots.txt": robots, "/1": feed(), "/2": feed()}))
    running = [crawl.start(web, sources=[f"http://slow.example/{name}"]) for name in (1, 2)]
    for each in running:
        each.wait()
    assert min(later.started - hit.ended for hit, later in pairwise(web.log)) >= 5.0


@pytest.fixture(params=["sqlite", "postgresql"])
def run_both(request, direct_web, crawl):
    """Run two crawls of the same 30 hosts, with a robots.txt each; return what was asked for."""

    def run(robots, *others, **settings):
        hosts = [f"h{number}.example" for number in range(30)]
        web = direct_web(*others, *(site(host, robots) for host in hosts))
        if request.param == "postgresql":
            settings["WALSH_STATE_URL"] = request.getfixturevalue("postgresql_url")
        sources = [f"http://{host}/feed" for host in hosts]
        running = [crawl.start(web, sources=sources, settings=settings, **ORDINARY) for _ in "ab"]
        results = [each.wait(LONGEST) for each in running]
        assert [each.exit_code for each in results] == [0, 0]
        assert sum(len(each.items) for each in results) == 2 * len(hosts)
        assert_polite(web.log, serial=False)
        asked = sorted(paths(web.log))
        of_hosts = [f"{host}{path}" for host in hosts for path in ("/feed", "/robots.txt")]
        assert [path for path in asked if path.startswith("h")] == sorted(of_hosts)
        return [path for path in asked if not path.startswith("h")]

    return run


def test_crawls_that_share_all_sources_ask_for_nothing_twice(run_both):
    """One is not done with a host when the other wants it."""
    run_both(Reply("", delay=0.1))


@pytest.mark.long
@pytest.mark.empty
def test_crawls_that_start_together_ask_for_the_blocklist_once(run_both):
    """It redirects, and its schema is read as well."""
    moved = {"/list.json": blocklist("x.example", delay=0.5)}
    lists = {"/blocklist.json": redirect("http://mirror.example/list.json"), "/schema.json": "{}"}
    settings = {"WALSH_BLOCKLIST_URL": LIST_URL, "WALSH_BLOCKLIST_SCHEMA_URL": SCHEMA_URL}
    web = Site("mirror.example", "", moved), Site("operator.example", "", lists)
    asked = run_both("", *web, **settings)
    names = ("blocklist.json", "robots.txt", "schema.json")
    mirrored = ["mirror.example/list.json", "mirror.example/robots.txt"]
    assert asked == mirrored + [f"operator.example/{name}" for name in names]
