"""A job over its starts: what is kept, in which order, and what Scrapy's own scheduler kept."""

import logging
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from queuelib.queue import FifoSQLiteQueue
from scrapy import Request, Spider, squeues
from scrapy.core.scheduler import Scheduler as ScrapyScheduler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.exceptions import CloseSpider
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.test import get_crawler

from tests.helpers import needs_scrapy_2_19
from walsh_scrapy.crawl.context import Context
from walsh_scrapy.crawl.hosts.ownedhosts import Hosts
from walsh_scrapy.crawl.hosts.queue import HostAccess, Queue
from walsh_scrapy.crawl.job import FILE, Job
from walsh_scrapy.crawl.scrapyinternals import Engine
from walsh_scrapy.crawl.startup import Kind
from walsh_scrapy.crawl.ticket import Hop, carry_ticket, hops_of, note, set_visit, ticket_of
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.feeds.sourcevisit import SourceVisit
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.scheduler import Scheduler
from walsh_scrapy.state import State

PRIORITY_QUEUES = ["DownloaderAwarePriorityQueue", "ScrapyPriorityQueue"]
DISK_QUEUES = [
    f"{form}{order}{storage}Queue"
    for form in ("Pickle", "Marshal")
    for order in ("Lifo", "Fifo")
    for storage in ("Disk", "SQLite")
    if hasattr(squeues, f"{form}{order}{storage}Queue")  # before Scrapy 2.19 none is on SQLite
]
needs_sqlite_queues = needs_scrapy_2_19("PickleFifoSQLiteQueue")


class Pages(Spider):
    name = "pages"

    def parse_page(self, response):
        """A callback by name."""


def queues(priority_queue, disk_queue):
    return {
        "SCHEDULER_PRIORITY_QUEUE": f"scrapy.pqueues.{priority_queue}",
        "SCHEDULER_DISK_QUEUE": f"scrapy.squeues.{disk_queue}",
    }


def engine():
    """The parts of Scrapy's engine that a scheduler uses; `inprogress` are its requests."""
    downloader = SimpleNamespace(
        active=set(), slots={}, get_slot_key=lambda request: urlsplit(request.url).hostname
    )
    nextcall = SimpleNamespace(schedule=lambda: None)
    slot = SimpleNamespace(inprogress=set(), closing=None, nextcall=nextcall)
    return SimpleNamespace(downloader=downloader, _slot=slot, _start_error=False)


class Starts:
    """The starts of one job in a folder; each has its crawler and scheduler."""

    def __init__(self, folder, spider=Pages):
        self.folder = folder
        self.job = folder / "job"
        self.spidercls = spider
        self.made = []
        state = State(f"sqlite:///{folder}/state.sqlite3")
        self.context = Context(Options(), state)

    def crawler(self, **given):
        crawler = get_crawler(
            self.spidercls,
            {
                "JOBDIR": str(self.job),
                **given,
            },
        )
        crawler.spider = crawler._create_spider()
        crawler.engine = engine()
        return crawler

    def ours(self, **given):
        """Start with the add-on's scheduler."""
        crawler = self.crawler(CONCURRENT_REQUESTS=0, **given)
        crawl = SimpleNamespace(
            crawler=crawler,
            settings=crawler.settings,
            stats=crawler.stats,
            kind=Kind.DECLARED,
            gates=frozenset(),
            context=self.context,
            engine=Engine(crawler),
            hosts=Hosts(self.context),
            declared_delays=SimpleNamespace(delays={}),
            exchanges=SimpleNamespace(sweep=lambda: None),
        )
        crawl.queue = Queue(crawl)
        crawl.access = HostAccess(crawl)
        dupefilter = build_from_crawler(RFPDupeFilter, crawler)
        scheduler = Scheduler(crawl, dupefilter, self.job_of(crawler))
        self.made.append(scheduler)
        scheduler.open(crawler.spider)
        return scheduler

    def job_of(self, crawler):
        """Return the job of a start."""
        return Job(crawler, str(self.job), self.context.clock)

    def close(self):
        """Close the files of starts that have not ended."""
        for scheduler in self.made:
            kill(scheduler)
        self.context.state.close()

    def scrapys(self, **given):
        """Start with Scrapy's scheduler."""
        crawler = self.crawler(**given)
        scheduler = ScrapyScheduler.from_crawler(crawler)
        scheduler.open(crawler.spider)
        return scheduler


@pytest.fixture
def starts(tmp_path):
    starts = Starts(tmp_path)
    yield starts
    starts.close()


def hand_out(scheduler):
    request = scheduler.next_request()
    if request is not None:
        scheduler._crawler.engine.downloader.active.add(request)
        scheduler._crawler.engine._slot.inprogress.add(request)
    return request


def end(scheduler, request):
    """The response to a request is handled; the engine calls its scheduler after each end."""
    scheduler._crawler.engine.downloader.active.discard(request)
    scheduler._crawler.engine._slot.inprogress.discard(request)
    scheduler._sweep_job(scheduler._job)


def drain(scheduler):
    """Hand out all requests, and end each at once."""
    drained = []
    while (request := hand_out(scheduler)) is not None:
        drained.append(request)
        end(scheduler, request)
    return drained


def urls_of(requests):
    return [request.url for request in requests]


def stop(scheduler):
    scheduler.close("shutdown")


def kill(scheduler):
    """End a start without its `close`, as after SIGKILL."""
    scheduler._queue.stop_timer()
    scheduler._job._file.close()
    if scheduler._dupefilter.file:
        scheduler._dupefilter.file.close()


def enqueue(scheduler, *urls, **arguments):
    for url in urls:
        assert scheduler.enqueue_request(Request(url, **arguments))


URLS = ["http://a.example/1", "http://a.example/2", "http://b.example/", "http://a.example/3"]


@pytest.mark.parametrize("ends", [stop, kill])
def test_waiting_requests_are_kept_in_their_order(starts, ends):
    first = starts.ours()
    page = {"callback": first._crawler.spider.parse_page, "meta": {"depth": 2}}
    enqueue(first, *URLS, **page)
    ends(first)
    second = starts.ours()
    assert not second.enqueue_request(Request(URLS[1])), "known since the first start"
    requests = drain(second)
    assert sorted(urls_of(requests)) == sorted(URLS)
    assert [url for url in urls_of(requests) if "a.example" in url] == [
        url for url in URLS if "a.example" in url
    ]
    assert all(request.meta["depth"] == 2 for request in requests)
    assert {request.callback.__name__ for request in requests} == {"parse_page"}
    stop(second)
    assert drain(starts.ours()) == []


@pytest.mark.parametrize("ends", [stop, kill])
def test_a_redirect_that_waits_keeps_its_hops_and_no_other_facts(starts, ends):
    first = starts.ours()
    hops = (Hop("http://a.example/1", 302), Hop("http://a.example/2", 301))
    redirected = Request("http://a.example/3", meta={"redirect_times": 2})
    note(redirected, hops=hops, attempt=3, robots_interval=9.0)
    assert first.enqueue_request(redirected)
    ends(first)
    (request,) = drain(starts.ours())
    assert (request.url, hops_of(request)) == ("http://a.example/3", hops)
    assert ticket_of(request)._replace(hops=()) == ticket_of(Request("http://a.example/3"))


@pytest.mark.parametrize("public_only", [True, False])
def test_a_redirect_keeps_its_wait_and_its_origin(starts, public_only):
    first = starts.ours()
    redirected = Request("http://b.example/2")
    until = starts.context.clock.monotonic() + 60.0
    hops = (Hop("http://a.example/1", 302),)
    note(redirected, hops=hops, not_before=until, public_only=public_only)
    first.enqueue_request(redirected)
    stop(first)
    starts.ours()
    (restored,) = [turn.request for _, _, turn in starts.made[-1]._queue._redirected]
    assert abs(ticket_of(restored).not_before - until) < 5.0
    assert ticket_of(restored).public_only is public_only


def test_the_wait_of_a_redirect_outlives_a_reboot(starts, monkeypatch):
    """The monotonic clock of the machine then begins anew."""
    clock = starts.context.clock
    redirected = Request("http://b.example/2")
    note(redirected, not_before=clock.monotonic() + 60.0)
    first = starts.ours()
    first.enqueue_request(redirected)
    stop(first)
    before = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() - before)
    starts.ours()
    (restored,) = [turn.request for _, _, turn in starts.made[-1]._queue._redirected]
    assert 50.0 < ticket_of(restored).not_before <= 60.0


def test_a_request_from_a_public_page_stays_public(starts):
    first = starts.ours()
    linked = Request("http://b.example/2")
    note(linked, public_only=True)
    first.enqueue_request(linked)
    stop(first)
    (restored,) = drain(starts.ours())
    assert ticket_of(restored).public_only


def test_redirects_that_a_project_claims_are_not_believed(starts):
    first = starts.scrapys()
    forged = {"redirect_urls": ["http://a.example/"], "redirect_times": 1, "walsh_ticket": "x"}
    first.enqueue_request(Request("http://b.example/", meta=forged))
    first.close("shutdown")
    (request,) = drain(starts.ours())
    assert hops_of(request) == ()


def test_requests_of_our_own_parts_are_not_kept(starts):
    first = starts.ours()
    robots_txt = Request("http://d.example/robots.txt")
    note(robots_txt, rank=Rank.ROBOTS)
    for_source = Request("http://e.example/")
    set_visit(for_source, SourceVisit(Source("http://e.example/"), lambda _content_type: True))
    assert first.enqueue_request(robots_txt)
    assert first.enqueue_request(for_source)
    stop(first)
    assert drain(starts.ours()) == []


def test_what_was_in_flight_at_a_kill_is_sent_again(starts):
    first = starts.ours()
    enqueue(first, "http://a.example/", "http://b.example/", "http://c.example/")
    over = hand_out(first)
    in_flight = hand_out(first)
    end(first, over)
    (waiting,) = {"http://a.example/", "http://b.example/", "http://c.example/"} - {
        over.url,
        in_flight.url,
    }
    kill(first)
    assert {*urls_of(drain(starts.ours()))} == {in_flight.url, waiting}


def test_a_deferred_request_is_kept_although_it_is_over(starts):
    first = starts.ours()
    enqueue(first, "http://a.example/", "http://b.example/")
    deferred = hand_out(first)
    first._access.defer(deferred)
    end(first, deferred)
    drain(first)
    stop(first)
    assert urls_of(drain(starts.ours())) == [deferred.url]


def test_a_duplicate_of_a_deferred_request_does_not_replace_it(starts):
    first = starts.ours()
    enqueue(first, "http://a.example/")
    deferred = hand_out(first)
    first._access.defer(deferred)
    end(first, deferred)
    assert not first.enqueue_request(Request("http://a.example/"))
    stop(first)
    assert urls_of(drain(starts.ours())) == ["http://a.example/"]


def test_a_deferred_request_that_is_made_again_is_kept_once(starts):
    first = starts.ours()
    enqueue(first, "http://a.example/")
    deferred = hand_out(first)
    first._access.defer(deferred)
    end(first, deferred)
    with pytest.raises(CloseSpider):
        first.spider_idle()
    enqueue(first, "http://a.example/", dont_filter=True)
    drain(first)
    first.spider_idle()
    stop(first)
    assert drain(starts.ours()) == []


def test_a_request_that_pacing_sends_back_is_kept_once(starts):
    first = starts.ours()
    enqueue(first, "http://a.example/")
    request = hand_out(first)
    assert first.enqueue_request(request)
    end(first, request)
    stop(first)
    assert urls_of(drain(starts.ours())) == ["http://a.example/"]


def test_a_start_request_that_is_kept_is_not_made_again(starts):
    start_request = {"meta": {"is_start_request": True}, "dont_filter": True}
    first = starts.ours()
    enqueue(first, "http://a.example/", "http://b.example/", **start_request)
    over = hand_out(first)
    end(first, over)
    stop(first)
    second = starts.ours()
    (kept,) = {"http://a.example/", "http://b.example/"} - {over.url}
    assert not second.enqueue_request(Request(kept, **start_request))
    assert second.enqueue_request(Request(over.url, **start_request))
    assert {*urls_of(drain(second))} == {kept, over.url}


def test_a_file_of_the_job_that_is_none_refuses_the_start(starts):
    starts.job.mkdir()
    (starts.job / FILE).write_text("this is no database, but a text of some length" * 100)
    crawler = starts.crawler(WALSH_STATE_URL=f"sqlite:///{starts.folder}/other.sqlite3")
    with pytest.raises(BadSetting, match="JOBDIR"):
        Scheduler.from_crawler(crawler)


def test_unserializable_requests_are_counted_in_one_warning(starts, caplog):
    first = starts.ours()
    enqueue(first, "http://a.example/1", "http://a.example/2", callback=lambda response: None)
    enqueue(first, "http://a.example/3")
    stop(first)
    (warning,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert warning.getMessage().startswith("2 requests ")
    assert urls_of(drain(starts.ours())) == ["http://a.example/3"]


@pytest.mark.parametrize("disk_queue", DISK_QUEUES)
@pytest.mark.parametrize("priority_queue", PRIORITY_QUEUES)
def test_a_job_goes_on_with_the_add_on_and_without_it(starts, priority_queue, disk_queue, caplog):
    given = queues(priority_queue, disk_queue)
    without = starts.scrapys(**given)
    for number, url in enumerate(URLS):
        without.enqueue_request(Request(url, priority=number % 2))
    without.enqueue_request(Request("http://s.example/", meta={"is_start_request": True}))
    without.close("shutdown")
    ours = starts.ours(**given)
    assert ours.has_pending_requests()
    read = hand_out(ours).url
    end(ours, ours._crawler.engine._slot.inprogress.copy().pop())
    enqueue(ours, "http://new.example/")
    stop(ours)
    without = starts.scrapys(**given)
    requests = iter(without.next_request, None)
    expected = {*URLS, "http://s.example/", "http://new.example/"} - {read}
    assert {*urls_of(requests)} == expected
    without.close("finished")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert drain(starts.ours(**given)) == [], "read without the add-on"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (queues(PRIORITY_QUEUES[0], "PickleLifoDiskQueue"), {"priority_queue": 1}),
        (queues(PRIORITY_QUEUES[1], "PickleLifoDiskQueue"), {"priority_queue": 0}),
        (queues(PRIORITY_QUEUES[0], "PickleFifoDiskQueue"), {"disk_queue": "PickleLifoDiskQueue"}),
        (queues(PRIORITY_QUEUES[0], "PickleLifoDiskQueue"), {"disk_queue": "PickleFifoDiskQueue"}),
        pytest.param(
            queues(PRIORITY_QUEUES[0], "PickleLifoDiskQueue"),
            {"disk_queue": "PickleFifoSQLiteQueue"},
            marks=needs_sqlite_queues,
        ),
        pytest.param(
            queues(PRIORITY_QUEUES[0], "PickleFifoSQLiteQueue"),
            {"disk_queue": "PickleLifoDiskQueue"},
            marks=needs_sqlite_queues,
        ),
    ],
)
def test_requests_in_another_form_are_counted_in_one_warning(starts, before, after, caplog):
    first = starts.scrapys(**before)
    for url in URLS:
        first.enqueue_request(Request(url))
    first.close("shutdown")
    given = queues(
        PRIORITY_QUEUES[after.get("priority_queue", 0)],
        after.get("disk_queue", "PickleLifoDiskQueue"),
    )
    second = starts.ours(**given)
    (warning,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert warning.getMessage().startswith("4 requests ")
    enqueue(second, "http://new.example/")
    stop(second)
    third = starts.scrapys(**before)
    assert {*urls_of(iter(third.next_request, None))} == {*URLS}, "they are left as they were"
    third.close("finished")
    assert urls_of(drain(starts.ours(**given))) == ["http://new.example/"]


def test_a_queue_on_sqlite_is_left_by_every_scrapy(starts, caplog):
    """Scrapy 2.18 has no class for such a queue, but a newer one may have written it."""
    folder = starts.job / "requests.queue"
    folder.mkdir(parents=True)
    queue = FifoSQLiteQueue(folder / "0")
    for _ in range(2):
        queue.push(b"a request")
    queue.close()
    before = (folder / "0").read_bytes()
    (folder / "active.json").write_text("[0]")
    start = starts.ours(**queues(PRIORITY_QUEUES[1], "PickleLifoDiskQueue"))
    (warning,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert warning.getMessage().startswith("2 requests ")
    enqueue(start, "http://new.example/")
    stop(start)
    assert (folder / "0").read_bytes() == before


class Renamed(Spider):
    name = "pages"


def test_requests_whose_callback_is_gone_are_counted(starts, caplog):
    first = starts.scrapys()
    for url in URLS[:2]:
        first.enqueue_request(Request(url, callback=first.spider.parse_page))
    first.enqueue_request(Request(URLS[2]))
    first.close("shutdown")
    starts.spidercls = Renamed
    second = starts.ours()
    (warning,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert warning.getMessage().startswith("2 requests ")
    assert urls_of(drain(second)) == [URLS[2]]


class JobMachine(RuleBasedStateMachine):
    """A job that is stopped and killed at any moment: each page is read over its starts."""

    def __init__(self):
        super().__init__()
        self.pages = {}  # reads of each URL that must be read
        self.in_flight_at_kills = set()
        self.number = 0
        self.scheduler = None

    @initialize(
        priority_queue=st.sampled_from(PRIORITY_QUEUES), disk_queue=st.sampled_from(DISK_QUEUES)
    )
    def begin(self, priority_queue, disk_queue):
        self.given = queues(priority_queue, disk_queue)
        self.starts = Starts(self.FOLDERS.make())
        self.scheduler = self.starts.ours(**self.given)
        self.in_flight = []

    @rule(hosts=st.lists(st.integers(0, 2), min_size=1, max_size=4), priority=st.integers(-1, 1))
    def find_links(self, hosts, priority):
        for host in hosts:
            self.number += 1
            url = f"http://h{host}.example/{self.number}"
            self.pages[url] = 0
            request = Request(url, priority=priority)
            assert self.scheduler.enqueue_request(request)
            assert not self.scheduler.enqueue_request(request.replace())

    @rule()
    def hand_out(self):
        request = hand_out(self.scheduler)
        if request is not None:
            self.in_flight.append(request)

    @precondition(lambda self: self.in_flight)
    @rule()
    def read(self):
        request = self.in_flight.pop(0)
        self.pages[request.url] += 1
        end(self.scheduler, request)

    @precondition(lambda self: self.in_flight)
    @rule(host=st.integers(0, 2))
    def redirect(self, host):
        request = self.in_flight.pop(0)
        self.number += 1
        following = request.replace(url=f"http://h{host}.example/moved/{self.number}")
        carry_ticket(request, following)
        note(following, hops=(*hops_of(request), Hop(request.url, 302)))
        self.pages.pop(request.url)
        self.pages[following.url] = 0
        assert self.scheduler.enqueue_request(following)
        end(self.scheduler, request)

    @precondition(lambda self: self.in_flight)
    @rule()
    def retry(self):
        request = self.in_flight.pop(0)
        assert self.scheduler.enqueue_request(request.replace(dont_filter=True))
        end(self.scheduler, request)

    @precondition(lambda self: self.in_flight)
    @rule()
    def send_back(self):
        request = self.in_flight.pop(0)
        assert self.scheduler.enqueue_request(request)
        end(self.scheduler, request)

    @precondition(lambda self: self.pages)
    @rule(data=st.data())
    def find_a_known_link(self, data):
        url = data.draw(st.sampled_from(sorted(self.pages)))
        if "moved" not in url:  # a redirect of a retry passes the duplicate filter unseen
            assert not self.scheduler.enqueue_request(Request(url))

    @precondition(lambda self: self.in_flight)
    @rule()
    def defer(self):
        request = self.in_flight.pop(0)
        self.scheduler._access.defer(request)
        end(self.scheduler, request)

    @rule()
    def stop(self):
        while self.in_flight:
            self.read()
        stop(self.scheduler)
        self.scheduler = self.starts.ours(**self.given)

    @rule()
    def kill(self):
        self.in_flight_at_kills |= {request.url for request in self.in_flight}
        self.in_flight.clear()
        kill(self.scheduler)
        self.scheduler = self.starts.ours(**self.given)

    def teardown(self):
        if self.scheduler is None:
            return
        self.stop()
        for request in drain(self.scheduler):
            if request.url in self.pages:
                self.pages[request.url] += 1
        self.stop()
        assert drain(self.scheduler) == []
        self.starts.close()
        for url, reads in self.pages.items():
            assert reads >= 1, f"{url} is lost"
            assert reads == 1 or url in self.in_flight_at_kills, f"{url} was read {reads} times"


@pytest.fixture
def folders(tmp_path):
    def make():
        number = len([*tmp_path.iterdir()])
        (tmp_path / str(number)).mkdir()
        return tmp_path / str(number)

    return SimpleNamespace(make=make)


@pytest.mark.long
def test_each_page_is_read_whenever_the_job_is_stopped(folders):
    JobMachine.FOLDERS = folders
    machine = settings(max_examples=25, stateful_step_count=25, phases=[Phase.generate])
    run_state_machine_as_test(JobMachine, settings=machine)
