"""The scheduler between Scrapy and the frontier (R4, decision 6)."""

import asyncio
from functools import partial

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from tests.helpers import HANG_SECONDS
from walsh_scrapy.crawl.hosts import queue
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.ticket import Hop, note
from walsh_scrapy.exceptions import RequestDeferred, TooLate
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.scheduler import Scheduler


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    monkeypatch.setattr(queue, "MAX_READY_HOSTS", 3)
    crawler = get_crawler(settings_dict={"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"})
    return Scheduler.from_crawler(crawler)


def fed(scheduler, count):
    for number in range(count):
        scheduler.enqueue_request(Request(f"http://h{number}.example/"))


async def has_room(scheduler):
    """Return True if a start request would be taken now, after all tasks have run."""
    task = asyncio.ensure_future(scheduler._queue.wait_for_room())
    for _ in range(5):
        await asyncio.sleep(0)
    done = task.done()
    task.cancel()
    return done


def test_a_start_request_waits_while_enough_hosts_could_be_asked(scheduler):
    async def scenario():
        fed(scheduler, 2)
        assert await has_room(scheduler)
        fed(scheduler, 3)  # one more: the others are duplicates
        assert not await has_room(scheduler)
        waiting = asyncio.ensure_future(scheduler._queue.wait_for_room())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert scheduler.next_request() is not None
        await asyncio.wait_for(waiting, HANG_SECONDS)

    asyncio.run(scenario())


def test_a_request_that_a_gate_sends_back_is_no_duplicate(scheduler):
    assert scheduler.enqueue_request(Request("http://a.example/"))
    request = scheduler.next_request()
    turn = scheduler._queue.turn_of(request)
    assert scheduler._queue.send_back(turn, 0.0) is request
    assert scheduler.enqueue_request(request)
    assert not request.dont_filter
    assert scheduler._queue.turn_of(request) is None, "only what is out may come back"
    assert not scheduler.enqueue_request(Request("http://a.example/"))
    assert scheduler._queue.waiting == 1


def test_a_scheduler_ends_the_exchanges_that_are_over(scheduler, monkeypatch):
    """No event may have come at their end, and their hosts would stay busy."""
    swept = []
    monkeypatch.setattr(scheduler._exchanges, "sweep", lambda: swept.append(True))
    scheduler.next_request()
    assert swept == [True]


async def answer(request):
    return Response(request.url)


def test_a_request_sent_past_the_queue_does_not_delay_the_end(scheduler, monkeypatch):
    """Its request stays in the queue until its host is ready, and counts for nothing."""

    async def scenario():
        queue, fetcher = scheduler._queue, Crawl.of(scheduler._crawler).fetcher
        monkeypatch.setattr(queue._engine, "take_requests", lambda: None)
        answered = partial(fetcher._documents.download, answer)
        monkeypatch.setattr(queue._engine, "download", answered)
        queue.delay("a.example", 600.0)
        fetch = asyncio.ensure_future(
            fetcher.send(Request("http://a.example/robots.txt"), Rank.ROBOTS)
        )
        await asyncio.sleep(0)
        assert (len(queue.frontier), queue.waiting) == (1, 0)
        with fetcher.gate_waits():
            await asyncio.sleep(0)
        await fetch
        assert not scheduler.has_pending_requests()

    asyncio.run(scenario())


def test_what_comes_too_late_for_the_wire_is_sent_again(scheduler, monkeypatch):
    """It is our own trouble, also if a gate waits for the answer and there was no turn."""
    tries = []

    async def download(request):
        tries.append(request)
        if len(tries) == 1:
            raise TooLate("it is too late for that")
        return await answer(request)

    async def scenario():
        fetcher = Crawl.of(scheduler._crawler).fetcher
        monkeypatch.setattr(fetcher._engine, "take_requests", lambda: None)
        downloaded = partial(fetcher._documents.download, download)
        monkeypatch.setattr(fetcher._engine, "download", downloaded)
        with fetcher.gate_waits():
            return await fetcher.send(Request("http://a.example/robots.txt"), Rank.ROBOTS)

    assert asyncio.run(scenario()).status == 200
    assert len(set(map(id, tries))) == 2


class FixedClock:
    """A clock that stands at one moment."""

    def __init__(self, seconds):
        self.seconds = seconds

    def monotonic(self):
        return self.seconds

    now = moment = monotonic


def redirected_until(scheduler, not_before):
    """Queue a request whose redirect asked for a wait; the time is 1000."""
    scheduler._queue._context.clock = FixedClock(1000.0)
    request = Request("http://b.example/")
    note(request, hops=(Hop("http://a.example/", 302),), not_before=not_before)
    assert scheduler.enqueue_request(request)
    return request


def test_a_redirected_request_is_handed_out_after_its_wait(scheduler):
    async def scenario():
        request = redirected_until(scheduler, 1030.0)
        assert scheduler.next_request() is None
        scheduler._queue._context.clock.seconds = 1030.0
        assert scheduler.next_request() is request
        assert not scheduler.has_pending_requests()

    asyncio.run(scenario())


def test_a_redirected_request_that_waits_is_pending(scheduler):
    redirected_until(scheduler, 1030.0)
    assert scheduler.has_pending_requests()


def test_other_requests_do_not_wait_for_a_redirected_one(scheduler):
    redirected_until(scheduler, 1030.0)
    other = Request("http://b.example/other")
    scheduler.enqueue_request(other)
    assert scheduler.next_request() is other


def test_a_redirect_that_asks_for_a_long_wait_is_deferred(scheduler):
    request = redirected_until(scheduler, 1901.0)
    assert scheduler.next_request() is request
    with pytest.raises(RequestDeferred) as caught:
        asyncio.run(scheduler._access.wait_after_redirect(request))
    assert caught.value.until == 1901.0
