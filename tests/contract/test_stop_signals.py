"""SIGTERM, SIGINT and SIGHUP end a crawl in order, whatever it does at that moment."""

import fcntl
import json
import os
import re
import signal
import struct
import termios
from importlib.resources import files
from threading import Event, Thread

import pytest
from jsonschema import Draft202012Validator

from tests.helpers.sites import (
    LIST_URL,
    blocklist,
    feed,
    hosts_in_flight,
    judge,
    log_lines,
    rows_of,
    site,
    trouble,
)
from walsh_scrapy.crawl.log import UNNEEDED
from walsh_scrapy.identity import SPEC_VERSION
from walsh_scrapy.testing.web import Reply, Site

HANG_UP_TWICE = (signal.SIGHUP, signal.SIGHUP)
#: Under nohup a crawl has to survive it.
IS_IGNORED = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def is_told(running, words):
    return words in (running.folder / "stderr").read_text(encoding="utf-8")


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

    def hang(hit):
        over.wait(60.0)
        return feed(host=hit.host)

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

    def hang(hit):
        over.wait(60.0)
        return feed(host=hit.host)

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


# What an operator sees of a run: a display at a terminal, few lines in a log, a summary.

SCHEMA = json.loads((files("walsh_scrapy") / "summary.schema.json").read_text("utf-8"))
ERASED = "\x1b[2K"
#: A line of the log that begins neither a line nor where the display was erased.
TORN = re.compile(
    r"(?<!\n)(?<!\x1b\[2K)(?<!\x1b\[\?25l)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:INFO|WARNING) .*"
)


class Terminal:
    """A terminal of 80 columns; ``said`` is all that was written to it."""

    def __init__(self):
        self._master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._written = bytearray()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self):
        try:
            while some := os.read(self._master, 65536):
                self._written.extend(some)
        except OSError:  # EIO: nobody has the other end any more
            return

    def close(self):
        os.close(self.slave)
        self._reader.join()
        os.close(self._master)
        return self._written.decode()


@pytest.fixture
def at_terminal(crawl, crawl_launcher):
    """Run a crawl whose standard error is a terminal; return the result, and what it showed."""

    def run(web, **options):
        terminal = Terminal()

        def launch(command, *, cwd, env, stdout, stderr):
            env = env | {"TERM": "xterm-256color"}
            return crawl_launcher(command, cwd=cwd, env=env, stdout=stdout, stderr=terminal.slave)

        try:
            result = crawl(web, **options, launcher=launch)
        finally:
            said = terminal.close()
        return result, said

    return run


def test_a_terminal_shows_progress_and_then_a_summary(direct_web, at_terminal):
    web = direct_web(
        Site(
            "operator.example",
            pages={"/blocklist.json": [Reply(status=503), blocklist("bad.example")]},
        ),
        site("slow.example", "User-agent: *\nCrawl-delay: 3\n"),
        site("ill.example", feed=Reply(status=404)),
    )
    hosts = ("slow", "ill", "bad")
    result, said = at_terminal(
        web,
        sources=[f"http://{host}.example/feed" for host in hosts],
        settings={"WALSH_BLOCKLIST_URL": LIST_URL, "STATS_DUMP": 0},
    )
    assert result.exit_code == 0, said
    assert "try 2 of 5" in said
    assert re.search(r"slow\.example: .*3 s", said)
    assert "2 of 3 sources" in said
    assert "1 failed, 1 denied" in said
    assert re.search(r"[12] s left\r\n", said)
    assert TORN.findall("\n" + said) == [], said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l"), "the cursor is shown again"
    _, _, end = said.rpartition(ERASED)
    assert "run finished" in end, "the summary comes after the last display"
    assert "answered 404: ill.example\r\n" in end
    for beginning in filter(None, (start for lines in UNNEEDED.values() for start in lines)):
        assert f"INFO {beginning}" not in said
    ((kept,),) = rows_of(result, "SELECT summary FROM runs")
    summary = json.loads(kept)
    Draft202012Validator(SCHEMA).validate(summary)
    assert summary["failures"] == [
        {"reason": "answered 404", "sources": 1, "hosts": ["ill.example"], "more_hosts": 0}
    ]
