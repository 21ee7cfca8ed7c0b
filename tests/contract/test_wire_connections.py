"""At most one connection is open, whatever is requested; names, families, sessions (26, 27)."""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.helpers.sites import LIST_URL, blocklist, feed, feeds, judge, rows_of, site
from walsh_scrapy.spidermiddlewares.firstseen import MOST_AT_ONCE
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.site import DEAD, OWN, UNKNOWN, Answer
from walsh_scrapy.testing.web import Certificate, Site, redirect


def hosts_of(connections):
    return {connection.host for connection in connections}


def test_one_connection_at_a_time_and_one_full_handshake_a_host(direct_web, crawl):
    """http and https, both versions of TLS, redirects between hosts, robots.txt and blocklist."""
    secure = [
        replace(site(f"s{number}.example"), tls=Certificate.GOOD, tls_version=version)
        for number, version in enumerate(["1.2", "1.3"] * 3)
    ]
    plain = [site(f"p{number}.example") for number in range(6)]
    web = direct_web(
        Site("operator.example", "", {"/blocklist.json": blocklist("blocked.example")}),
        site("blocked.example"),
        site("mover.example", feed=redirect("https://s0.example/other")),
        *secure,
        *plain,
    )
    sources = [
        *(f"https://{each.name}/feed" for each in secure),
        *(f"http://{each.name}/feed" for each in plain),
        "http://mover.example/feed",
        "http://blocked.example/feed",
    ]
    web.add(replace(secure[0], pages={"/feed": secure[0].pages["/feed"], "/other": "no feed"}))
    result = crawl(web, sources=sources, settings={"WALSH_BLOCKLIST_URL": LIST_URL})
    assert result.stats["walsh/sources/fetched"] == 12
    assert web.most_open_connections == 1
    secured = [each for each in web.connections if each.scheme == "https"]
    for each in secure:
        shaken = [it.handshake for it in secured if it.host == each.name]
        assert shaken == ["full", *["resumed"] * (len(shaken) - 1)]
        assert len(shaken) > 1
    assert "blocked.example" not in {lookup.name for lookup in web.lookups}
    assert "blocked.example" not in hosts_of(web.connections)
    assert_polite(result.log, connections=web.connections, blocked=["blocked.example"])


def connections_of(pid):
    """The TCP connections, made or begun, of which a process has the descriptors."""
    held = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            held.add(str(each.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[3] in ("01", "02") and f"socket:[{row[9]}]" in held]


def test_the_crawler_has_one_descriptor_of_a_connection(direct_web, crawl):
    """Counted in the process itself, while it waits for each answer."""
    started, counts = SimpleQueue(), []

    def page(hit):
        started.put(pid := started.get(timeout=60))
        counts.append(len(connections_of(pid)))
        return feed(host=hit.host)

    plain = [site(f"p{number}.example", feed=page) for number in range(3)]
    secure = [replace(each, name=f"s{each.name}", tls=Certificate.GOOD) for each in plain]
    web = direct_web(*plain, *secure)
    sources = [f"http://{each.host}/feed" for each in plain]
    sources += [f"https://{each.host}/feed" for each in secure]
    running = crawl.start(web, sources=sources)
    started.put(running.pid)
    assert running.wait().stats["walsh/sources/fetched"] == 6
    assert counts == [1] * 6


def test_every_family_and_every_address_is_tried(direct_web, crawl):
    answers = {
        "six.example": Answer(("::1",)),
        "dead-first.example": Answer((DEAD, OWN)),
        "six-dead.example": Answer(("2001:db8::1", OWN)),
        "mapped.example": Answer(("::ffff:127.0.0.1",)),
        "nowhere.example": UNKNOWN,
    }
    web = direct_web(*(replace(site(name), dns=answer) for name, answer in answers.items()))
    result = crawl(web, sources=[f"http://{name}/feed" for name in answers])
    assert {hit.host for hit in result.log} == {*answers} - {"nowhere.example"}
    assert result.stats["walsh/sources/fetched"] == 4
    assert web.most_open_connections == 1


def test_names_are_looked_up_before_their_turn(direct_web, crawl):
    """Twenty names of half a second each are looked up while others are requested."""
    slow = Answer(delay=0.5)
    web = direct_web(*(replace(site(f"h{number}.example"), dns=slow) for number in range(20)))
    crawl(web, sources=[f"http://h{number}.example/feed" for number in range(20)])
    assert len(web.lookups) == 20
    overlapping = [
        sum(1 for other in web.lookups if other.started <= each.started < other.ended)
        for each in web.lookups
    ]
    assert max(overlapping) > 4


#: Seconds that the spider below takes for each document, before its first item and after its last.
BEFORE, AFTER = 0.5, 2.5
SLOW_SPIDER = f"""
import time
from spiders.feeds import FeedsSpider


class SlowSpider(FeedsSpider):
    name = "slow"
    custom_settings = {{"SPIDER_MODULES": ["spiders"]}}

    def parse(self, response, source):
        time.sleep({BEFORE})
        yield from super().parse(response, source)
        time.sleep({AFTER})
"""


@pytest.fixture
def read_slowly(direct_web, crawl, project_with):
    """Crawl two hosts, each with this page at two URLs, by the spider above."""

    def run(page):
        names = ("first", "second")
        web = direct_web(*(site(f"{name}.example", feed=page, other=page) for name in names))
        sources = [*feeds(*names), *feeds(*names, path="other")]
        result = crawl(web, "slow", sources=sources, project=project_with(SLOW_SPIDER))
        assert result.stats["walsh/sources/fetched"] == len(sources)
        assert web.most_open_connections == 1
        judge(result)
        return web

    return run


def assert_no_exchange_seems_longer(crawl):
    """Reading makes no exchange longer: neither in the record, nor in the pause after it."""
    rows = rows_of(crawl, "SELECT max(seconds), max(pause) FROM requests WHERE purpose = 'target'")
    assert max(rows[0]) < AFTER


def test_the_next_connection_is_made_while_a_document_is_read(read_slowly, crawl):
    web = read_slowly(feed())
    opened = {(each.host, each.client): each.opened for each in web.connections}
    read = [pair for pair in pairwise(web.log) if pair[0].path != "/robots.txt"]
    assert len(read) == 3
    for document, following in read[1:]:  # from then on both hosts are ready
        assert following.started - document.ended >= BEFORE + AFTER
        assert opened[following.host, following.client] - document.ended < BEFORE + AFTER
    assert_no_exchange_seems_longer(crawl)


def test_items_of_a_costly_document_wait_for_the_exchange_in_flight(read_slowly, crawl):
    """While another process reads it the crawl goes on; its items are handled afterwards."""
    read_slowly(feed(posts=[f"Post {number}" for number in range(8 * MOST_AT_ONCE)], delay=1.0))
    assert_no_exchange_seems_longer(crawl)


def test_a_request_is_sent_once_the_last_document_was_committed(loopback_web, crawl):
    """Also over a connection that is there already: a proxy's serves every host."""
    left = []

    def page(hit):
        answered = {each.host for each in web.log if each.path == "/feed" and each.complete}
        left.append(len(answered) - len(rows_of(crawl, "SELECT url FROM sources")))
        return feed(host=hit.host)

    names = [f"h{number}" for number in range(10)]
    web = loopback_web(*(site(f"{name}.example", feed=page) for name in names))
    result = crawl(web, sources=feeds(*names))
    assert result.stats["walsh/sources/fetched"] == len(names)
    assert left == [0] * len(names)
    judge(result)
