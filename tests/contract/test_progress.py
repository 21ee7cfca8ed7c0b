"""What an operator sees of a run: a display at a terminal, few lines in a log, a summary."""

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

from tests.helpers.sites import LIST_URL, blocklist, rows_of, site
from walsh_scrapy.crawl.log import UNNEEDED
from walsh_scrapy.testing.web import Reply, Site

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


def test_a_terminal_has_a_display_below_the_log_and_a_summary_at_the_end(direct_web, at_terminal):
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
    assert "waiting for the blocklist: try 2 of 5 in " in said
    assert re.search(
        r"waiting for slow.example: next request in [\d.]+ s \(its delay is 3 s\)", said
    )
    assert re.search(r"[012] of 3 sources done · \d s · at least [12] s left\r\n", said)
    assert "0 new entries · 1 failed · 1 denied · " in said
    assert TORN.findall("\n" + said) == [], said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l"), "the cursor is shown again"
    _, _, end = said.rpartition(ERASED)
    assert "run finished; sources:\r\n  fetched           1\r\n" in end, "nothing is below it"
    assert "  failed            1   1 answered 404: ill.example\r\n" in end
    for beginning in filter(None, (each for lines in UNNEEDED.values() for each in lines)):
        assert f"INFO {beginning}" not in said
    ((kept,),) = rows_of(result, "SELECT summary FROM runs")
    summary = json.loads(kept)
    Draft202012Validator(SCHEMA).validate(summary)
    assert summary["failures"] == [
        {"reason": "answered 404", "sources": 1, "hosts": ["ill.example"], "more_hosts": 0}
    ]
