"""Decision 34: a costly document is read in another process, which can be given up."""

import asyncio
import io
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from scrapy.http import Response

from tests.conftest import LONGEST
from walsh_scrapy.exceptions import GivenUp
from walsh_scrapy.metadata.document import Document
from walsh_scrapy.metadata.feeds import NotAFeed, parse_feed
from walsh_scrapy.runtime import reading, readingworker
from walsh_scrapy.runtime.context import SystemClock
from walsh_scrapy.runtime.reading import Readings, Worker, read

URL = "http://blog.example/feed"
MANY = b"<rss><channel>" + b"<item><title>One</title></item>" * 1000 + b"</channel></rss>"


def document(body, reader=parse_feed, url=URL):
    return Document(reader, body, url, None, URL)


@pytest.fixture
def readings():
    """The readings of a crawl, with a function that reads one document ahead and then for good."""
    engine = SimpleNamespace(is_closing=False)

    class Ours:
        def __init__(self):
            self.started = 0

        def read(self, *documents, worker=Worker, closing=None):
            engine.is_closing = closing is not None

            def start():
                self.started += 1
                return worker()

            async def run():
                readings = Readings(engine, SystemClock(), start)
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

    return Ours()


class Silent:
    """A worker that is busy until it is ended."""

    def __init__(self):
        self.ended = threading.Event()

    def ask(self, _message):
        self.ended.wait()

    def end(self):
        self.ended.set()
        return -9


class Broken(Silent):
    """A worker that ends by itself."""

    def ask(self, _message):
        """Answer nothing."""


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


def test_a_document_that_takes_too_long_is_given_up_with_a_sentence(readings, monkeypatch):
    monkeypatch.setattr(reading, "WALL_SECONDS", 0.2)
    with pytest.raises(NotAFeed, match=r"^Reading http://\S+ took longer than 5 s\.$"):
        readings.read(document(MANY), worker=Silent)
    with pytest.raises(NotAFeed, match=r"ended the process that read it \(-9\)"):
        readings.read(document(MANY), worker=Broken)


def test_a_document_is_given_up_when_the_crawl_ends_and_has_not_failed(readings, monkeypatch):
    monkeypatch.setattr(reading, "GRACE_SECONDS", 0.1)
    with pytest.raises(GivenUp):
        readings.read(document(MANY), worker=Silent, closing=True)


def no_memory(_body, **_rest):
    raise MemoryError


def endless(_body, **_rest):
    while True:
        pass


def test_what_needs_too_much_memory_is_refused_with_a_sentence():
    result = readingworker._result(document(b"", reader=no_memory))
    assert str(result) == f"Reading {URL} needs more than 200 MiB of memory."


def test_the_process_limits_its_memory(monkeypatch):
    limits = {}
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    readingworker._limit_memory()
    assert limits[resource.RLIMIT_DATA][0] == 184 * 2**20
    assert limits[resource.RLIMIT_CORE] == (0, 0)


def test_each_document_has_all_of_the_processor_time(monkeypatch):
    stream, limits = io.BytesIO(), []
    for _ in range(2):
        readingworker.send(stream, pickle.dumps(document(b"<rss/>")))
    stream.seek(0)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=io.BytesIO()))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: limits.append((which, seconds)))
    monkeypatch.setattr(readingworker, "_limit_memory", lambda: None)
    readingworker.main()
    given = (signal.ITIMER_PROF, readingworker.CPU_SECONDS)
    assert limits == [given, (signal.ITIMER_PROF, 0)] * 2


HASTY = """
from walsh_scrapy.runtime import readingworker
readingworker.CPU_SECONDS = 0.1
readingworker.main()
"""


def test_the_system_ends_a_reading_that_has_used_up_its_processor_time(readings, monkeypatch):
    """Here after 0.1 s, of which an endless reading gets all on any machine."""
    monkeypatch.setattr(reading, "WALL_SECONDS", LONGEST)
    ends = []

    class Hasty(Worker):
        def __init__(self):
            self._process = subprocess.Popen(
                [sys.executable, "-c", HASTY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )

        def end(self):
            ends.append(super().end())
            return ends[-1]

    with pytest.raises(NotAFeed, match="took longer than 5 s"):
        readings.read(document(MANY, reader=endless), worker=Hasty)
    assert ends == [-signal.SIGPROF]


def test_messages_end_with_their_stream():
    stream = io.BytesIO()
    readingworker.send(stream, b"one")
    for cut, expected in ((0, b"one"), (1, None), (5, None)):
        assert readingworker.receive(io.BytesIO(stream.getvalue()[: 11 - cut])) == expected


def test_a_signal_to_all_processes_of_a_service_ends_no_reading(readings):
    """The crawl itself decides whether the document in hand is finished."""

    class Signalled(Worker):
        def ask(self, message):
            answer = super().ask(message)
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(self._process.pid, each)
            return answer

    first, second = readings.read(document(MANY * 3), document(MANY * 3), worker=Signalled)
    assert first.entries == second.entries
    assert readings.started == 1
