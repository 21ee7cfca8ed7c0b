"""Decision 34: what may cost too much is done in another process, which can be given up."""

import asyncio
import io
import os
import pickle
import resource
import signal
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from scrapy.http import Response

from walsh_scrapy.crawl import isolated, reading
from walsh_scrapy.crawl.context import SystemClock
from walsh_scrapy.crawl.isolated import CostLimits, IsolatedProcess, answer_calls
from walsh_scrapy.crawl.reading import Readings, read
from walsh_scrapy.exceptions import RequestDeferred
from walsh_scrapy.metadata.document import Document
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.feed import parse_feed

URL = "http://blog.example/feed"
MANY = b"<rss><channel>" + b"<item><title>One</title></item>" * 1000 + b"</channel></rss>"


def document(body, reader=parse_feed, url=URL):
    return Document(reader, body, url, None, URL)


class FakeNetwork:
    """No request waits."""

    async def let_next_connect(self):
        pass

    async def pause_reading(self):
        pass


@pytest.fixture
def readings(monkeypatch):
    """The readings of a crawl, with a function that reads one document ahead and then for good."""
    engine, start = SimpleNamespace(is_closing=False), IsolatedProcess._start

    class Ours:
        started = 0
        after_start = None  #: called with the process

        def read(self, *documents):
            async def run():
                readings = Readings(engine, SystemClock(time.time), FakeNetwork(), nullcontext)
                try:
                    for each in documents:
                        response = Response(URL, body=each.body)
                        await readings.ahead(response, each)
                        yield read(response, each)
                finally:
                    readings.close()

            async def all_of():
                return [feed async for feed in run()]

            return asyncio.run(all_of())

    ours = Ours()
    ours.engine = engine

    def start_counted(isolated_process):
        ours.started += 1
        process = start(isolated_process)
        if ours.after_start:
            ours.after_start(process)
        return process

    monkeypatch.setattr(IsolatedProcess, "_start", start_counted)
    return ours


@pytest.mark.parametrize(
    ("body", "url", "costly"),
    [
        (b"<rss/>", URL, False),
        (b"<item/>" * 2000, URL, False),
        (b"<item/>" * 3000, URL, True),
        (b'{"id":1},' * 3000, URL, True),
        (b"[1]\n" * 3000, URL, True),
        (b" " * 300_000, URL, True),
        (b"a_b*c " * 3000, URL, False),
        (b"_" * 11_000, URL, True),
        (b"<rss/>", URL + "/a" * 400, True),
    ],
)
def test_what_is_costly_goes_by_size_and_by_what_is_in_it(body, url, costly):
    assert document(body, url=url).is_costly == costly


def test_costly_documents_are_read_by_one_process_and_cheap_ones_here(readings):
    cheap, first, second = readings.read(document(b"<rss/>"), document(MANY), document(MANY))
    assert (cheap.entries, len(first.entries), second) == ((), 1000, first)
    assert first == document(MANY).read()
    assert readings.started == 1


def test_a_costly_document_that_is_no_feed_is_refused_as_any_other(readings):
    with pytest.raises(NotAFeed, match="HTML"):
        readings.read(document(b"<html>" + b"<p>" * 3000))


def freeze(process):
    os.kill(process.pid, signal.SIGSTOP)


def test_a_document_that_takes_too_long_is_given_up_with_a_sentence(readings, monkeypatch):
    monkeypatch.setattr(isolated, "PATIENCE", 0.04)
    readings.after_start = freeze
    with pytest.raises(NotAFeed, match=r"^Reading http://\S+ took longer than 5 s\.$"):
        readings.read(document(MANY))


def test_a_document_that_ends_its_process_is_refused_with_a_sentence(readings):
    with pytest.raises(NotAFeed, match=r"^Reading http://\S+ ended its process \(3\)\.$"):
        readings.read(document(MANY, reader=ending))


def test_a_document_is_given_up_when_the_crawl_ends_and_has_not_failed(readings, monkeypatch):
    monkeypatch.setattr(reading, "GRACE_SECONDS", 0.1)
    readings.engine.is_closing, readings.after_start = True, freeze
    with pytest.raises(RequestDeferred):
        readings.read(document(MANY))


def ending(_body, **_rest):
    os._exit(3)


def no_memory(_body, **_rest):
    raise MemoryError


def endless(_body, **_rest):
    while True:
        pass


def test_what_needs_too_much_memory_is_refused_with_a_sentence(readings):
    with pytest.raises(NotAFeed, match=r"^Reading \S+ needs more than 200 MiB of memory\.$"):
        readings.read(document(MANY, reader=no_memory))


def test_the_process_limits_its_memory(monkeypatch):
    limits = {}
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    isolated._limit_memory(200 * 2**20)
    assert limits[resource.RLIMIT_DATA][0] == 184 * 2**20
    assert limits[resource.RLIMIT_CORE] == (0, 0)


def test_each_call_has_all_of_the_processor_time(monkeypatch):
    stream, limits = io.BytesIO(), []
    for _ in range(2):
        stream.write(pickle.dumps((Document.read, (document(b"<rss/>"),), {})))
    stream.seek(0)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=io.BytesIO()))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: limits.append((which, seconds)))
    monkeypatch.setattr(isolated, "_limit_memory", lambda _: None)
    answer_calls(5, 2**30)
    assert limits == [(signal.ITIMER_PROF, 5), (signal.ITIMER_PROF, 0)] * 2


def test_the_system_ends_a_call_that_has_used_up_its_processor_time(readings, monkeypatch):
    """Here after 0.1 s, of which an endless reading gets all on any machine."""
    monkeypatch.setattr(isolated, "PATIENCE", 1e6)
    monkeypatch.setattr(reading, "LIMITS", CostLimits(seconds=0.1, memory=2**30))
    with pytest.raises(NotAFeed, match=r"took longer than 0\.1 s"):
        readings.read(document(MANY, reader=endless))


def test_a_signal_to_all_processes_of_a_service_ends_no_reading(readings, monkeypatch):
    """The crawl itself decides whether the document in hand is finished."""
    ask = isolated._ask

    def ask_and_signal(process, message):
        answer = ask(process, message)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, each)
        return answer

    monkeypatch.setattr(isolated, "_ask", ask_and_signal)
    first, second = readings.read(document(MANY * 3), document(MANY * 3))
    assert first.entries == second.entries
    assert readings.started == 1
