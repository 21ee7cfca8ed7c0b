"""Our own standstill blames nobody and harms no host (decision 29); see `benchmarks.faults`.

A crawl is stopped by SIGSTOP when its request has arrived. It goes on when somebody else has got an
answer that takes longer than a request of the crawl may take, or when another worker is done.
"""

import math
import os
import signal
from collections import Counter
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.helpers import LONGEST
from tests.helpers.sites import feed, site, trouble
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Certificate, Reply, Site, redirect

TIMEOUT = 2
CLOCK = Site("clock.example", "", {"/": Reply(delay=TIMEOUT + 1.0)})
BLAMES = (
    "SELECT host FROM hosts "
    "WHERE hold_until > 0 OR unreachable > 0 OR server_errors > 0 OR delay > 1.5"
)


def rows(url, statement):
    """Return what a statement finds in the state."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        return connection.execute(text(statement)).all()


@contextmanager
def stopped(running):
    """Let a crawl stand still meanwhile."""
    os.kill(running.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(running.pid, signal.SIGCONT)


def get_late_answer(web):
    """Ask the clock, and wait for its answer."""
    with closing(HTTPConnection(web.address(CLOCK.host), web.ports["http"])) as connection:
        connection.request("GET", "/", headers={"Host": CLOCK.host})
        connection.getresponse()


def in_flight(web):
    def is_asked(log):
        return any(hit.path == "/feed" and math.isinf(hit.ended) for hit in log)

    return web.wait_for(is_asked, LONGEST)


def in_handshake(web):
    return web.wait_for_connections(bool, LONGEST)


@pytest.mark.parametrize(("scheme", "begun"), [("http", in_flight), ("https", in_handshake)])
def test_a_crawl_that_stood_still_blames_no_host(direct_web, crawl, postgresql_url, scheme, begun):
    pages = {"/feed": feed(delay=1.0)}
    tls = Certificate.GOOD if scheme == "https" else None
    web = direct_web(Site("blog.example", "", pages, tls=tls), CLOCK, latency=0.1)
    given = {
        "sources": [f"{scheme}://blog.example/feed"],
        "settings": {"WALSH_STATE_URL": postgresql_url, "DOWNLOAD_TIMEOUT": TIMEOUT},
    }
    running = crawl.start(web, **given)
    assert begun(web)
    with stopped(running):
        get_late_answer(web)
    assert running.wait(LONGEST).exit_code == 0
    assert crawl(web, **given).exit_code == 0, "what was deferred is done in the next run"
    assert_polite(hit for hit in web.log if hit.host != CLOCK.host)
    assert rows(postgresql_url, "SELECT outcome, failures FROM sources") == [("fetched", 0)]
    assert rows(postgresql_url, BLAMES) == []


def test_a_redirect_that_loses_its_database_is_followed_once(direct_web, crawl, postgresql_url):
    def cut(_hit):
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        rows(postgresql_url, f"{end} WHERE {others}")
        return feed()

    def cut_and_redirect(hit):
        cut(hit)
        return redirect("http://new.example/feed", 302)

    web = direct_web(site("old.example", feed=cut_and_redirect), site("new.example", feed=cut))
    settings = {"WALSH_STATE_URL": postgresql_url}
    for _ in range(2):
        assert crawl(web, sources=["http://old.example/feed"], settings=settings).exit_code == 0
    assert_polite(web.log)
    assert set(Counter(hit.url for hit in web.log).values()) == {1}
    assert rows(postgresql_url, "SELECT outcome, failures FROM sources") == [("fetched", 0)]


def test_a_visit_whose_commit_was_not_answered_has_ended(direct_web, crawl, postgresql_url):
    """Its host was let go with it, and is not lost: its entries are exported, and once."""
    web = direct_web(site("a.example"))
    settings = {"WALSH_STATE_URL": postgresql_url} | trouble("UnansweredCommits")
    runs = [crawl(web, sources=["http://a.example/feed"], settings=settings) for _ in range(2)]
    assert "is lost (" in runs[0].stderr
    assert [run.exit_code for run in runs] == [0, 0]
    assert "was lost to another worker" not in runs[0].stderr
    assert len(runs[0].items) == 2
    assert runs[1].items == []


@pytest.mark.long
def test_a_worker_that_lost_its_host_meanwhile_follows_no_redirect_of_it(
    direct_web, crawl, postgresql_url
):
    target = "http://new.example/page"
    web = direct_web(
        site("old.example", feed=redirect(target, 302)),
        site("new.example", "User-agent: *\nCrawl-delay: 3\n", page=feed()),
    )
    settings = {"WALSH_STATE_URL": postgresql_url, "DOWNLOAD_TIMEOUT": TIMEOUT}
    given = {
        "sources": ["http://old.example/feed"],
        "settings": settings | trouble("ShortBeats"),
    }
    first = crawl.start(web, **given)

    def its_robots_was_read(log):
        return any(hit.host == "new.example" and hit.complete for hit in log)

    assert web.wait_for(its_robots_was_read, LONGEST)
    with stopped(first):  # it waits for the Crawl-delay
        assert crawl(web, **given).exit_code == 0
    assert first.wait(LONGEST).exit_code == 0
    assert_polite(web.log, serial=False, crawl_delays=web.crawl_delays)
    assert Counter(hit.url for hit in web.log)[target] == 1
    assert rows(postgresql_url, BLAMES.replace("1.5", "3.5")) == []
