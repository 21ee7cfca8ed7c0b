"""SIGTERM, SIGINT and SIGHUP end a crawl in order, whatever it does at that moment."""

import json
import os
import re
import signal
from dataclasses import replace
from threading import Event

import pytest

from tests.helpers.sites import (
    feed,
    hosts_in_flight,
    judge,
    log_lines,
    rows_of,
    site,
    trouble,
)
from walsh_scrapy.identity import SPEC_VERSION
from walsh_scrapy.testing.site import DEAD, Answer
from walsh_scrapy.testing.web import Reply

HANG_UP_TWICE = (signal.SIGHUP, signal.SIGHUP)
#: Under nohup a crawl has to survive it.
IS_IGNORED = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def is_told(running, words):
    return words in (running.folder / "stderr").read_text(encoding="utf-8")


def hang_until(over):
    """A page that comes once a test sets ``over``."""

    def hang(hit):
        over.wait(60.0)
        return feed(host=hit.host)

    return hang


def wait_until(web, moment):
    while not web.wait_for(lambda _log: moment(), 0.02):
        pass


@pytest.mark.parametrize(
    ("sent", "when"),
    [
        ((signal.SIGTERM,), "Overridden settings"),  # the crawl is being built
        ((signal.SIGHUP,), "Spider opened"),  # no request was sent
        ((signal.SIGINT,), "/robots.txt"),
        (HANG_UP_TWICE, "/feed"),
        ((signal.SIGTERM, signal.SIGHUP), "/feed"),  # as a service manager may
    ],
)
def test_a_signal_at_any_moment_ends_the_run_in_order(direct_web, crawl, sent, when):
    if IS_IGNORED and set(sent) == {signal.SIGHUP}:
        pytest.skip("these tests run under nohup")
    over = Event()
    hang = hang_until(over)
    robots = {"robots": hang} if when == "/robots.txt" else {"feed": hang}
    web = direct_web(site("a.example", **robots), site("b.example", **robots))
    sources = ["http://a.example/feed", "http://b.example/feed"]
    running = crawl.start(web, sources=sources, settings={"LOG_LEVEL": "DEBUG"})
    is_in_flight = when.startswith("/")
    if is_in_flight:
        wait_until(web, lambda: any(hit.path == when for hit in web.log))
    else:
        wait_until(web, lambda: is_told(running, when))
    for number in sent:
        os.kill(running.pid, number)
    if is_in_flight:
        wait_until(web, lambda: is_told(running, "shutting down gracefully"))
    over.set()
    result = running.wait()
    assert result.exit_code == 0, result.stderr
    assert result.stats["finish_reason"] == "shutdown"
    assert "run shutdown; sources:" in result.stderr
    ((kept,),) = rows_of(crawl, "SELECT summary FROM runs")
    summary = json.loads(kept)
    assert summary["finish_reason"] == "shutdown"
    fetched = 1 if when == "/feed" else 0
    assert summary["due"] == summary["deferred"] + summary["not_reached"] + fetched == 2
    assert (result.folder / "items.jsonl").exists()
    assert len(result.items) == 2 * fetched
    assert "Traceback" not in result.stderr
    assert hosts_in_flight(crawl) == []
    assert rows_of(crawl, "SELECT outcome FROM sources") == [("fetched",)] * fetched
    if web.log:
        judge(web)
    if is_in_flight:
        last = rows_of(crawl, "SELECT url, status, error FROM requests ORDER BY id DESC LIMIT 1")
        assert last == [(web.log[-1].url, 200, "")], "what was in flight has ended"
        assert web.log[-1].path == when


def test_a_missing_answer_delays_the_end_by_its_timeout(direct_web, crawl):
    over = Event()
    hang = hang_until(over)
    web = direct_web(site("a.example", feed=hang), site("b.example"))
    sources = ["http://a.example/feed", "http://b.example/feed"]
    running = crawl.start(web, sources=sources, settings={"DOWNLOAD_TIMEOUT": 2})
    wait_until(web, lambda: any(hit.host == "a.example" and hit.path == "/feed" for hit in web.log))
    os.kill(running.pid, signal.SIGTERM)
    wait_until(web, lambda: not running.running)
    over.set()
    result = running.wait()
    assert result.exit_code in (0, 1), "1 if no other source was read"
    assert result.stats["finish_reason"] == "shutdown"
    assert hosts_in_flight(crawl) == []
    (error,) = rows_of(crawl, "SELECT error FROM requests ORDER BY id DESC LIMIT 1")[0]
    assert "2.0 seconds" in error


def test_after_a_second_interrupt_no_host_has_an_owner(direct_web, crawl):
    """The next run would wait until it has expired."""
    over = Event()
    hang = hang_until(over)
    web = direct_web(site("a.example", feed=hang), site("b.example"))
    running = crawl.start(web, sources=["http://a.example/feed", "http://b.example/feed"])
    wait_until(web, lambda: any(hit.path == "/feed" for hit in web.log))
    os.kill(running.pid, signal.SIGINT)
    wait_until(web, lambda: is_told(running, "shutting down gracefully"))
    os.kill(running.pid, signal.SIGINT)
    wait_until(web, lambda: not running.running)
    over.set()
    result = running.wait()
    assert "forcing unclean shutdown" in result.stderr
    assert "Traceback" not in result.stderr
    assert rows_of(crawl, "SELECT count(*) FROM workers") == [(0,)]
    assert len(hosts_in_flight(crawl)) == 1, "it is busy until its request is over at the latest"


def test_a_signal_while_a_document_is_read_ends_the_run_in_order(direct_web, crawl):
    web = direct_web(site("a.example"), site("b.example"))
    sources = ["http://a.example/feed", "http://b.example/feed"]
    running = crawl.start(web, sources=sources, settings=trouble("FrozenReading"))
    wait_until(web, lambda: any(hit.path == "/feed" and hit.complete for hit in web.log))
    os.kill(running.pid, signal.SIGTERM)
    result = running.wait()
    assert result.exit_code == 0, result.stderr
    assert result.stats["finish_reason"] == "shutdown"
    assert "Traceback" not in result.stderr
    assert "run shutdown; sources:" in result.stderr
    assert f"Stored jsonl feed ({len(result.items)} items)" in result.stderr
    readers = re.findall("^frozen: ([0-9]+)$", result.stderr, re.MULTILINE)
    assert 1 <= len(readers) <= 2, "each document that has come has its second"
    for reader in readers:
        with pytest.raises(ProcessLookupError):
            os.kill(int(reader), 0)
    assert hosts_in_flight(crawl) == []
    assert rows_of(crawl, "SELECT outcome FROM sources") == [], "both are still due"
    judge(web)


# What is left of a crawl that ran to its end: its exit status, and its row in the state.
#
# The status is 1 if sources failed, and none was read.


def test_a_crawl_whose_every_source_failed_does_not_exit_with_0(direct_web, crawl):
    web = direct_web(
        site("ill.example", feed=Reply(status=404)),
        site("closed.example", "User-agent: *\nDisallow: /\n"),
        site("busy.example", feed=Reply(status=503, headers={"Retry-After": "7200"})),
    )
    hosts = ("ill", "closed", "busy")
    sources = [f"http://{host}.example/feed" for host in hosts]
    first = crawl(web, sources=sources)
    ended = {name: first.stats[f"walsh/sources/{name}"] for name in ("failed", "deferred")}
    assert ended == {"failed": 1, "deferred": 1}
    assert (first.exit_code, first.stats["finish_reason"]) == (1, "finished")
    assert log_lines(first, "no source", "1 failed")
    second = crawl(web, sources=sources)
    assert second.stats["walsh/sources/deferred"] == 1
    assert second.exit_code == 0, "what is deferred, denied or not due has not failed"


def test_each_run_has_a_row_that_its_requests_and_entries_name(direct_web, crawl):
    web = direct_web(site("a.example"))
    crawl(web, sources=["http://a.example/feed"])
    result = crawl(web, sources=["http://a.example/feed"])
    assert "\x1b" not in result.stderr
    kept = rows_of(
        result,
        "SELECT id, spider, finish_reason, ended_at > started_at, summary, versions FROM runs",
    )
    assert [row[:4] for row in kept] == [(1, "feeds", "finished", 1), (2, "feeds", "finished", 1)]
    counts = [json.loads(row[4]) for row in kept]
    assert [(count["fetched"], count["not_due"]) for count in counts] == [(1, 0), (0, 1)]
    assert json.loads(kept[0][5])["contract"] == SPEC_VERSION
    assert rows_of(result, "SELECT DISTINCT run FROM requests") == [(1,)]
    assert rows_of(result, "SELECT DISTINCT run FROM entries") == [(1,)]


ASKING = """
from scrapy import Request
from walsh_scrapy.feeds.spiders import FeedsSpider


class Asking(FeedsSpider):
    name = "asking"

    async def start(self):
        for source in self.sources:
            await self.crawler.engine.download_async(Request(source.url))
        yield {}
"""


def test_a_gate_that_waits_for_a_dead_host_ends_with_the_run(direct_web, crawl, project_with):
    """Its robots.txt is given up once, and not tried again while the crawl ends."""
    web = direct_web(replace(site("dead.example"), dns=Answer((DEAD,))))
    project = project_with(ASKING)
    running = crawl.start(web, "asking", sources=["http://dead.example/feed"], project=project)
    wait_until(web, lambda: bool(web.lookups))
    os.kill(running.pid, signal.SIGTERM)
    wait_until(web, lambda: not running.running)
    result = running.wait()
    assert result.stats["finish_reason"] == "shutdown"
    assert result.stats["downloader/request_count"] == 1
    assert hosts_in_flight(crawl) == []
