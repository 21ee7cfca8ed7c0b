"""What an operator sees of a run at a terminal: progress below the log, and then a summary."""

import fcntl
import json
import os
import re
import struct
import termios
from importlib.resources import files
from threading import Thread

import pytest
from jsonschema import Draft202012Validator

from tests.helpers.sites import LIST_URL, blocklist, feeds, rows_of, site
from walsh_scrapy.crawl.processlog import UNNEEDED
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.web import Reply, Site

SCHEMA = json.loads((files("walsh_scrapy") / "summary.schema.json").read_text("utf-8"))
#: Control sequences of a terminal.
ERASE_LINE, SHOW_CURSOR, HIDE_CURSOR = "\x1b[2K", "\x1b[?25h", "\x1b[?25l"
#: A line of the log that begins neither a line nor where the display was erased.
TORN = re.compile(
    r"(?<!\n)(?<!\x1b\[2K)(?<!\x1b\[\?25l)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:INFO|WARNING) .*"
)


class Terminal:
    """A terminal of 80 columns; `close` returns all that was written to it."""

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


@pytest.fixture(scope="module")
def run(shared_crawl, crawl_launcher):
    """A crawl whose standard error is a terminal: its result, and what the terminal showed."""
    terminal = Terminal()

    def launch(command, *, cwd, env, stdout, stderr):
        env = env | {"TERM": "xterm-256color"}
        return crawl_launcher(command, cwd=cwd, env=env, stdout=stdout, stderr=terminal.slave)

    lists = {"/blocklist.json": [Reply(status=503), blocklist("bad.example")]}
    web = DirectWeb(
        Site("operator.example", pages=lists),
        site("slow.example", "User-agent: *\nCrawl-delay: 3\n"),
        site("ill.example", feed=Reply(status=404)),
    )
    settings = {"WALSH_BLOCKLIST_URL": LIST_URL, "STATS_DUMP": 0}
    try:
        result = shared_crawl(
            web, sources=feeds("slow", "ill", "bad"), settings=settings, launcher=launch
        )
    finally:
        output = terminal.close()
    assert result.exit_code == 0, output
    return result, output


@pytest.fixture
def output(run):
    return run[1]


def test_a_refused_blocklist_is_shown_with_its_next_try(output):
    assert "try 2 of 5" in output


def test_the_host_that_a_crawl_waits_for_is_shown_with_its_delay(output):
    assert re.search(r"slow\.example: .*3 s", output)


def test_finished_sources_are_counted(output):
    assert "2 of 3 sources" in output
    assert "1 failed, 1 denied" in output


def test_the_remaining_time_is_shown(output):
    assert re.search(r"[12] s left\r\n", output)


def test_the_display_tears_no_line_of_the_log(output):
    assert TORN.findall("\n" + output) == [], output


def test_the_cursor_is_shown_again(output):
    assert output.rindex(SHOW_CURSOR) > output.rindex(HIDE_CURSOR)


def test_the_summary_comes_after_the_last_display(output):
    _, _, end = output.rpartition(ERASE_LINE)
    assert "run finished" in end
    assert "answered 404: ill.example\r\n" in end


def test_lines_of_scrapy_that_no_operator_needs_are_not_shown(output):
    starts = {start for lines in UNNEEDED.values() for start in lines if start}
    assert starts
    assert [start for start in starts if f"INFO {start}" in output] == []


def test_the_record_of_the_run_has_the_summary(run):
    ((kept,),) = rows_of(run[0], "SELECT summary FROM runs")
    summary = json.loads(kept)
    Draft202012Validator(SCHEMA).validate(summary)
    assert summary["failures"] == [
        {"reason": "answered 404", "sources": 1, "hosts": ["ill.example"], "more_hosts": 0}
    ]
