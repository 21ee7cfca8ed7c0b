"""Decision 34: what strangers wrote is read in another process, which can be given up."""

import asyncio
import io
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from scrapy import Request

from walsh_scrapy.crawl import childprocess, isolated
from walsh_scrapy.crawl.childprocess import TooCostly, answer_calls
from walsh_scrapy.crawl.context import SystemClock
from walsh_scrapy.crawl.isolated import CostLimits, IsolatedProcess, Reader
from walsh_scrapy.crawl.ticket import note
from walsh_scrapy.exceptions import MachineTrouble, StillDue
from walsh_scrapy.feeds.feedcrawl import FeedCrawl
from walsh_scrapy.feeds.metadata.document import Document
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.testing.simulation import FakeClock

URL = "http://blog.example/feed"
RSS = Document(
    "feed", b"<rss><channel><item><title>A</title></item></channel></rss>", URL, None, URL
)


def read(reader, document):
    """As a spider reads a document."""
    return FeedCrawl(SimpleNamespace(reader=reader)).read(document)


class Readers:
    """A reader of a crawl, and the processes that it started."""

    def __init__(self):
        self.engine = SimpleNamespace(is_closing=False)
        self.clock = SystemClock(time.time)
        self.started = []
        self.after_start = None  #: called with the process

    def run(self, use):
        """Return the result of a coroutine function that takes a reader."""

        async def run():
            reader = Reader(self.engine, self.clock)
            try:
                return await use(reader)
            finally:
                reader.close()

        return asyncio.run(run())

    def read(self, document):
        return self.run(lambda reader: read(reader, document))

    def call(self, function):
        return self.run(lambda reader: reader.call(URL, function))


@pytest.fixture
def readers(monkeypatch):
    """The readings of a crawl, with the processes that it starts."""
    ours, start = Readers(), IsolatedProcess._start

    def start_noted(isolated_process):
        process = start(isolated_process)
        ours.started.append(process)
        if ours.after_start:
            ours.after_start(process)
        return process

    monkeypatch.setattr(IsolatedProcess, "_start", start_noted)
    return ours


def freeze(process):
    os.kill(process.pid, signal.SIGSTOP)


def end(process):
    process.kill()
    process.wait()


def ending():
    os._exit(3)


def no_memory():
    raise MemoryError


def endless():
    while True:
        pass


def test_all_documents_are_read_by_one_process(readers):
    async def use(reader):
        return await asyncio.gather(*(read(reader, RSS) for _ in range(3)))

    assert readers.run(use) == [RSS.read()] * 3
    assert len(readers.started) == 1


def test_a_document_that_is_no_feed_is_refused_as_anywhere(readers):
    with pytest.raises(NotAFeed, match="HTML"):
        readers.read(Document("feed", b"<html>", URL, None, URL))


def test_a_process_that_ended_between_documents_is_replaced(readers):
    async def use(reader):
        await read(reader, RSS)
        await asyncio.to_thread(end, readers.started[0])
        return await read(reader, RSS)

    assert readers.run(use) == RSS.read()


def request_of_rank(rank):
    request = Request("http://blog.example/robots.txt")
    note(request, rank=rank)
    return request


@pytest.mark.parametrize(
    ("is_expecting", "rank", "started"),
    [(True, Rank.ROBOTS, 1), (False, Rank.ROBOTS, 0), (True, Rank.TARGET, 0)],
    ids=["documents will come", "the add-on alone", "no robots.txt"],
)
def test_the_process_starts_with_the_first_robots_txt(readers, is_expecting, rank, started):
    async def use(reader):
        if is_expecting:
            reader.expect_documents()
        for _ in range(2):
            reader.request_reached_downloader(request_of_rank(rank))

    readers.run(use)
    assert len(readers.started) == started


def test_in_simulated_time_no_process_is_started(readers):
    readers.clock = FakeClock()
    assert readers.read(RSS) == RSS.read()
    assert readers.started == []


def test_reading_a_document_has_a_timeout(readers, monkeypatch):
    monkeypatch.setattr(isolated, "WALL_TIME_FACTOR", 0.04)
    readers.after_start = freeze
    with pytest.raises(NotAFeed, match="longer than 5 s"):
        readers.read(RSS)


def test_a_document_that_ends_the_reading_process_is_refused(readers):
    with pytest.raises(TooCostly, match=r"\(3\)"):
        readers.call(ending)


def test_a_document_is_given_up_when_the_crawl_ends(readers, monkeypatch):
    monkeypatch.setattr(isolated, "GRACE_SECONDS", 0.1)
    readers.engine.is_closing, readers.after_start = True, freeze
    with pytest.raises(StillDue):
        readers.read(RSS)


def test_a_process_that_cannot_be_started_is_our_trouble(readers, monkeypatch):
    def refuse(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(MachineTrouble, match="Cannot allocate memory"):
        readers.read(RSS)


def test_what_needs_too_much_memory_is_refused(readers):
    with pytest.raises(TooCostly, match="200 MiB"):
        readers.call(no_memory)


def large():
    return b"a" * childprocess.MAX_RESULT_BYTES


def test_a_result_that_is_too_large_stays_in_the_process(readers):
    with pytest.raises(TooCostly, match="16 MiB"):
        readers.call(large)


def test_the_process_limits_its_memory(monkeypatch):
    limits = {}
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    childprocess._limit_memory(200 * 2**20)
    assert limits[resource.RLIMIT_DATA][0] == 184 * 2**20
    assert limits[resource.RLIMIT_CORE] == (0, 0)


def test_each_call_has_all_of_the_processor_time(monkeypatch):
    stream, limits = io.BytesIO(), []
    for _ in range(2):
        stream.write(pickle.dumps((Document.read, (RSS,), {})))
    stream.seek(0)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=io.BytesIO()))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: limits.append((which, seconds)))
    monkeypatch.setattr(childprocess, "_limit_memory", lambda _: None)
    answer_calls(5, 2**30)
    assert limits == [(signal.ITIMER_PROF, 5), (signal.ITIMER_PROF, 0)] * 2


def test_a_call_that_uses_up_its_cpu_time_is_ended(readers, monkeypatch):
    """Here after 0.1 s, of which an endless reading gets all on any machine."""
    monkeypatch.setattr(isolated, "WALL_TIME_FACTOR", 1e6)
    monkeypatch.setattr(isolated, "LIMITS", CostLimits(seconds=0.1, memory=2**30))
    with pytest.raises(TooCostly, match=r"longer than 0\.1 s"):
        readers.call(endless)


def test_a_signal_to_all_processes_of_a_service_ends_no_reading(readers, monkeypatch):
    """The crawl itself decides whether the document in hand is finished."""
    ask = isolated._ask_process

    def ask_and_signal(process, message):
        answer = ask(process, message)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, number)
        return answer

    async def use(reader):
        return [await read(reader, RSS) for _ in range(2)]

    monkeypatch.setattr(isolated, "_ask_process", ask_and_signal)
    assert readers.run(use) == [RSS.read()] * 2
    assert len(readers.started) == 1


def test_the_process_does_not_import_what_only_the_crawl_needs():
    """Each crawl pays for its start, and two workers pay twice."""
    program = "import sys, walsh_scrapy.crawl.childprocess; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert {"asyncio", "scrapy", "twisted"}.isdisjoint(imported.stdout.decode().split())
