"""Decision 41: crawls with the same settings on one state share its work, also if one is killed."""

import math
import subprocess
from collections import Counter
from threading import Event

import pytest

from tests.helpers import LONGEST
from tests.helpers.sites import feed, site, trouble
from tests.helpers.troubles import ShortBeats
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply

WORKERS = 3
SMALL = [f"h{number}.example" for number in range(24)]
LARGE = "platform.example"
#: Each host takes a while to begin, so that no worker has begun all of them before another comes.
ROBOTS = Reply("", delay=0.5)
#: Sources of the large host: a chain as long as a dead worker counts as living.
CHAIN = int(3 * ShortBeats.seconds)


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_workers_share_what_is_due_and_take_over_what_a_killed_one_leaves(
    request, direct_web, crawl, database
):
    is_killed = Event()

    def page(_hit):
        """Give the other workers time to come, and the first one to be killed."""
        begun = sum(hit.path == "/feed" for hit in web.log)
        return feed(delay=2.0 if begun > WORKERS and not is_killed.is_set() else 0.0)

    def all_are_at_work(log):
        out = [hit for hit in log if hit.path == "/feed" and not math.isfinite(hit.ended)]
        return len(out) == WORKERS

    pages = {f"{number}": feed(delay=0.05) for number in range(CHAIN)}
    web = direct_web(site(LARGE, **pages), *(site(host, ROBOTS, feed=page) for host in SMALL))
    sources = sorted(f"http://{each.host}{path}" for each in web.sites for path in each.pages)
    settings = {"DOWNLOAD_TIMEOUT": 5, **trouble("ShortBeats")}
    if database == "postgresql":
        settings["WALSH_STATE_URL"] = request.getfixturevalue("postgresql_url")

    def start():
        return crawl.start(web, sources=sources, settings=settings, launcher=subprocess.Popen)

    first, *others = [start() for _ in range(WORKERS)]
    dead = first.kill_when(all_are_at_work)
    is_killed.set()
    results = [each.wait(LONGEST) for each in others]

    assert dead.exit_code < 0
    assert [each.exit_code for each in results] == [0, 0]
    assert_polite(web.log, serial=False)
    assert web.most_open_connections <= WORKERS
    asked = Counter(hit.url for hit in web.log)
    again = {url: count for url, count in asked.items() if count > 1}
    assert asked.keys() >= set(sources)
    # What an exchange has shown is written with the next transaction of its host.
    targets = [url for url in again if not url.endswith("/robots.txt")]
    assert len(targets) <= 1, "only the request in flight is made again"
    assert not again or max(again.values()) == 2
    assert min(each.stats["walsh/sources/fetched"] for each in results) > 0, "each has its share"


def test_one_that_was_alone_leaves_its_share_to_another_that_comes(direct_web, crawl):
    """It owns no more hosts than it has use for."""

    def page(_hit):
        """Give the other worker time to come."""
        begun = sum(hit.path == "/feed" for hit in web.log)
        return feed(delay=3.0 if begun <= 3 else 0.1)

    web = direct_web(*(site(host, ROBOTS, feed=page) for host in SMALL))
    sources = [f"http://{host}/feed" for host in SMALL]
    first = crawl.start(web, sources=sources, launcher=subprocess.Popen)
    web.wait_for(lambda log: len(log) >= 4, LONGEST)
    results = [crawl(web, sources=sources, launcher=subprocess.Popen), first.wait(LONGEST)]
    assert [each.exit_code for each in results] == [0, 0]
    assert_polite(web.log, serial=False)
    assert Counter(hit.url for hit in web.log if hit.path == "/feed") == dict.fromkeys(sources, 1)
    shares = [each.stats["walsh/sources/fetched"] for each in results]
    assert min(shares) > 0
    assert [each.stats["walsh/sources/due"] for each in results] == shares
