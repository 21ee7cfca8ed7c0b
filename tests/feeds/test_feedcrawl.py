"""The visits of a crawl (R6, R8)."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from walsh_scrapy.crawl.hosts import ownedhosts
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.ticket import (
    set_visit,
)
from walsh_scrapy.exceptions import RequestDeferred
from walsh_scrapy.feeds import feedcrawl
from walsh_scrapy.feeds.feedcrawl import MAX_PAGE_SOURCES, DueSources, FeedCrawl
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.feeds.sourcevisit import SourceVisit
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.feeds.stores.sourcestore import Selection
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.state.evidence import RequestRecord
from walsh_scrapy.state.ownership import RequestLimits
from walsh_scrapy.testing.simulation import FakeClock

HOST = "a.example"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def worker(tmp_path, clock):
    """Return a function that makes another crawl of one state."""
    settings = {
        "WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3",
        "WALSH_BLOCKLIST_URL": f"https://{LIST}/blocklist.json",
    }
    return lambda: Crawl(get_crawler(settings_dict=settings), clock)


class BeatsOnce:
    """In place of the timer of a worker: the test lets it beat again."""

    def __init__(self, beat):
        self._beat = beat

    def start(self, _seconds):
        self._beat()


class Sleeps:
    """In place of all sleeps: the clock goes on at once, and ``meanwhile`` is called."""

    def __init__(self, monkeypatch, clock):
        self._clock = clock
        self.meanwhile = lambda: None
        monkeypatch.setattr(feedcrawl, "sleep", self)
        monkeypatch.setattr(ownedhosts, "create_looping_call", BeatsOnce)

    async def __call__(self, seconds):
        self.passes(seconds)

    def passes(self, seconds):
        for _ in range(int(seconds)):
            self._clock.advance(1.0)
            self.meanwhile()


@pytest.fixture
def sleeps(monkeypatch, clock):
    return Sleeps(monkeypatch, clock)


def same(file):
    return f"file {file}, feed, only='', force=False"


@pytest.fixture
def visit(tmp_path):
    """Return a function: a crawl that beats by itself visits these URLs, and returns their order.

    ``after`` is called after each, with what was due.
    """

    def visit_all(crawl, urls, after=lambda _due: None):
        file = tmp_path / "sources.toml"
        file.write_text("\n".join(f'[[source]]\nurl = "{url}"' for url in urls))
        number = Stores(crawl.context.state).sync(file, crawl.context.clock.now()).id
        crawl.queue.open()

        async def visited():
            found = []
            async for due in DueSources(
                FeedCrawl.of(crawl).visits, Selection(number, "feed")
            ).due_urls():
                found.append(due.url)
                after(due)
            return found

        return asyncio.run(visited())

    return visit_all


@pytest.mark.usefixtures("sleeps")
@pytest.mark.parametrize("read", [1, MAX_PAGE_SOURCES])
def test_of_a_host_that_was_lost_no_further_source_is_visited(worker, visit, read):
    """What is due there stays due, and the sources of the other hosts are visited."""
    ours, seen = worker(), []

    def lose(due):
        seen.append(due)
        if len(seen) == read:
            ours.hosts._drop(HOST)

    urls = [f"http://{HOST}/{number}" for number in range(3 * MAX_PAGE_SOURCES)] + [
        "http://b.example/"
    ]
    found = visit(ours, urls, lose)
    assert len(found) == read + 1
    assert found[-1] == "http://b.example/"


@pytest.mark.parametrize(
    ("is_dead", "is_other", "seconds"),
    [(False, False, 15.0), (True, False, 55.0), (True, True, 55.0), (False, True, 50.0)],
)
def test_a_run_ends_while_live_workers_visit_its_hosts(
    worker, clock, sleeps, visit, is_dead, is_other, seconds
):
    ours, other = worker(), worker()
    other.hosts.beat("others" if is_other else same(1))
    assert other.queue.own(HOST, other) == "ready"
    began = clock.now()

    def beat():
        ours.hosts._beat()
        if not is_dead:
            other.hosts._beat()
        if clock.now() - began >= 40.0:
            other.hosts.let_go(HOST, other)

    sleeps.meanwhile = beat
    found = visit(ours, [f"http://{HOST}/", "http://b.example/"])
    is_visited = is_dead or is_other
    assert found == ["http://b.example/", *([f"http://{HOST}/"] if is_visited else [])]
    assert clock.now() - began <= seconds


def test_a_waiting_worker_does_not_try_hosts_of_live_workers(
    worker, clock, sleeps, visit, monkeypatch
):
    """A vain try is a transaction, and there may be thousands of hosts."""
    ours, other = worker(), worker()
    other.hosts.beat("others")
    hosts = [f"{number}.example" for number in range(3)]
    assert {other.queue.own(host, other) for host in hosts} == {"ready"}
    began, tried, take = clock.now(), [], ours.hosts.take

    def counted(host, *arguments):
        tried.append(host)
        return take(host, *arguments)

    def beat():
        ours.hosts._beat()
        other.hosts._beat()
        if clock.now() - began == 200.0:
            for host in hosts:
                other.hosts.let_go(host, other)

    monkeypatch.setattr(ours.hosts, "take", counted)
    sleeps.meanwhile = beat
    assert len(visit(ours, [f"http://{host}/" for host in hosts])) == len(hosts)
    assert sorted(tried) == sorted(2 * hosts), "once before it waited, and once afterwards"


@pytest.mark.parametrize("delay", [1.0, 20.0, 60.0])
def test_a_host_is_free_for_a_moment_after_a_minute(worker, clock, sleeps, visit, delay):
    """Then a redirect of another worker gets through that waits there."""
    ours, other = worker(), worker()
    other.context.state.hosts.set_delay(HOST, delay, "for this test")
    other.hosts.beat("others")
    urls = [f"http://{HOST}/{number}" for number in range(int(200 / delay))]
    free_at = [clock.now()]

    def look():
        other.hosts._beat()
        ours.hosts._beat()
        if other.hosts.take(HOST, other) == "ready":
            free_at.append(clock.now())
            other.hosts.let_go(HOST, other)

    sleeps.meanwhile = look

    def end(due):
        sleeps.passes(delay)
        FeedCrawl.of(ours).visits.end(due.source)

    assert sorted(visit(ours, urls, end)) == sorted(urls)
    gaps = [after - before for before, after in pairwise(free_at)]
    assert max(gaps) <= max(60.0, delay + 1.0)


def test_alone_a_worker_owns_a_host_until_its_work_is_done(worker, sleeps, visit):
    ours, reader = worker(), worker()
    sleeps.meanwhile = ours.hosts._beat
    left = {f"http://{HOST}/{number}" for number in range(20)}

    def end(due):
        sleeps.passes(10.0)
        FeedCrawl.of(ours).visits.end(due.source)
        left.remove(due.url)
        assert not left or reader.hosts.take(HOST, reader) == "wait"

    visit(ours, sorted(left), end)
    assert not left


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_worker_takes_few_hosts_until_it_is_alone(worker, sleeps, is_alone):
    """Others that start at the same moment would have to wait for what it took."""
    ours, other = worker(), worker()
    ours.hosts.beat(same(1))
    if not is_alone:
        other.hosts.beat(same(1))
    assert (ours.hosts.max_ready_hosts, ours.hosts.workers) == (1, 1), "it is told as alone"
    ours.hosts._beat()
    assert ours.hosts.max_ready_hosts == (8 if is_alone else 1)


def test_what_is_deferred_at_another_host_gives_up_neither(worker):
    """A redirect to a host that a worker has given up is deferred, and its own host is not."""
    ours, other = worker(), worker()
    source, request = Source(f"http://{HOST}/"), Request("http://b.example/")
    set_visit(request, SourceVisit(source, bool))
    assert other.hosts is not None, "its run has begun"
    assert ours.queue.own(HOST, source.url) == "ready"
    with pytest.raises(RequestDeferred):
        ours.access.check_wait(request, 1e9)
    ours.hosts.let_go(HOST, source.url)
    assert other.hosts.take(HOST, other) == "ready"


LIST = "wal.sh"


@pytest.mark.parametrize(("host", "taken"), [(HOST, "deferred"), (LIST, "ready")])
def test_a_host_that_is_given_up_is_left_to_a_later_run_by_all(worker, clock, host, taken):
    """But every worker needs the blocklist."""
    ours, other = worker(), worker()
    assert other.hosts is not None, "its run has begun"
    assert ours.hosts.take(host, ours) == "ready"
    ours.hosts.give_up(host)
    ours.hosts.let_go(host, ours)
    assert ours.hosts.take(host, ours) == taken
    ours.hosts.let_go(host, ours)
    assert other.hosts.take(host, other) == taken
    other.hosts.let_go(host, other)
    clock.advance(1.0)
    assert worker().hosts.take(host, None) == "ready"


def test_a_redirect_of_another_worker_ends_no_visits_of_a_host(worker, clock, sleeps, visit):
    """It owns the host for some time, and beats, but visits nothing there."""
    ours, other = worker(), worker()
    other.context.state.hosts.set_delay(HOST, 10.0, "for this test")
    other.hosts.beat(same(1))
    owned = []

    def redirect():
        other.hosts._beat()
        ours.hosts._beat()
        if not owned and other.hosts.take(HOST, "a redirect") == "ready":
            owned.append(clock.now())
        elif owned and clock.now() - owned[0] >= 12.0:
            other.hosts.let_go(HOST, "a redirect")

    sleeps.meanwhile = redirect

    def end(due):
        sleeps.passes(10.0)
        FeedCrawl.of(ours).visits.end(due.source)

    assert len(visit(ours, [f"http://{HOST}/{number}" for number in range(20)], end)) == 20
    assert owned


@pytest.mark.usefixtures("sleeps")
def test_a_host_owned_again_for_a_redirect_does_not_stop_visits(worker, clock, visit):
    ours, other = worker(), worker()
    other.hosts.beat("others")

    def lose(due):
        if due.url.endswith("/2"):
            ours.hosts._drop(HOST)
            assert ours.hosts.take(HOST, "a redirect") == "ready"
            clock.advance(31.0)
            other.hosts._beat()
            ours.hosts._beat()

    urls = [f"http://{HOST}/{number}" for number in range(10)] + ["http://b.example/"]
    found = visit(ours, urls, lose)
    after = found[found.index(urls[2]) + 1 :]
    assert after == [urls[-1]], "another worker may have visited the others of its page"


def test_the_delay_of_a_source_keeps_the_host_it_redirects_to(worker):
    ours, other = worker(), worker()
    source = Source(f"http://{HOST}/", delay=timedelta(hours=1))
    request = Request("http://b.example/")
    set_visit(request, SourceVisit(source, bool))
    assert other.hosts is not None, "its run has begun"
    assert ours.queue.own("b.example", request) == "ready"
    with pytest.raises(RequestDeferred):
        ours.access.check_wait(request, 3590.0)
    ours.hosts.let_go("b.example", request)
    assert other.hosts.take("b.example", other) == "ready"


def test_several_workers_that_see_one_outage_count_it_once(worker, clock):
    """Also at the host of the blocklist, which each of them tries (decision 28)."""
    workers = [worker(), worker()]
    assert all(member.hosts is not None for member in workers), "their runs have begun"
    silent = Exchange(delay=1.0, status=0, unreachable=True, for_robots=True)
    for member in workers:
        request = Request(f"https://{LIST}/robots.txt")
        assert member.hosts.take(LIST, request) == "ready"
        record = RequestRecord(clock.now(), LIST, request.url, "")
        assert member.hosts.begin(request, LIST, RequestLimits(1.0, 10.0), record).status == "ready"
        found = member.hosts.end(request, LIST, silent, record)
        assert (found.times.unreachable, found.hold) == (1, 0.0)
        member.hosts.let_go(LIST, request)
        clock.advance(5.0)


@pytest.mark.usefixtures("sleeps")
def test_sources_of_a_host_that_is_already_owned_are_visited(worker, visit):
    """As that of the blocklist, which is fetched at the same time."""
    ours = worker()
    assert ours.hosts.take(HOST, "the blocklist") == "ready"
    assert visit(ours, [f"http://{HOST}/"]) == [f"http://{HOST}/"]
