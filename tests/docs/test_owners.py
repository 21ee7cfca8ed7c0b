"""docs/owners.md: what its lines of awk and SQL show of a server's log."""

import os
import shutil
import sys
from datetime import datetime, timedelta

import pytest

from tests.docs.test_commands import LINES_OF_LOGS
from tests.helpers import ROOT, execute

AGENT = "Mozilla/5.0 (compatible; Walsh-Research/1.0; +https://wal.sh/bot/)"
#: Two requests 4 s apart around midnight of a new year, and one a minute later.
MIDNIGHT = datetime.fromisoformat("2026-12-31T23:59:58+01:00")
#: Seconds, address, path, status and User-Agent of each request.
SENT = [
    (0, "192.0.2.1", "/robots.txt", 200, AGENT),
    (1, "192.0.2.9", "/", 200, "curl/8"),
    (4, "192.0.2.1", "/feed.xml", 200, AGENT),
    (64, "192.0.2.1", "/private/it's", 404, AGENT),
    (124, "192.0.2.1", "/feed.xml", 304, AGENT),
]
AWK, SQL = LINES_OF_LOGS[:4], LINES_OF_LOGS[4:]


@pytest.fixture
def shown(tmp_path):
    """Return a function from lines of the page to what the last of them prints, as words."""
    log, common = "", ""
    for seconds, address, path, status, agent in SENT:
        at = (MIDNIGHT + timedelta(seconds=seconds)).strftime("%d/%b/%Y:%H:%M:%S %z")
        line = f'{address} - - [{at}] "GET {path} HTTP/1.1" {status} 512'
        log, common = f'{log}{line} "-" "{agent}"\n', f"{common}{line}\n"
    (tmp_path / "access.log").write_text(log, "utf-8")
    (tmp_path / "common.log").write_text(common, "utf-8")
    (tmp_path / "robots.txt").write_text("User-agent: *\nDisallow: /private\n", "utf-8")

    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def show(*lines):
        for line in lines:
            if line.startswith("sqlite3") and not shutil.which("sqlite3"):
                pytest.skip("sqlite3 is not on this machine")
            called = line.replace(
                "walsh mayfetch", f"{sys.executable} -m walsh_scrapy.console mayfetch"
            )
            done = execute("sh", "-c", called, cwd=tmp_path, env=environment)
            assert (done.returncode, done.stderr) == (0, "")
        return [text.split() for text in done.stdout.splitlines()]

    return show


def test_awk_shows_agent_gap_and_robots_txt(shown):
    agents, gaps, robots, denied = AWK
    assert shown(agents) == [["4", *AGENT.split()], ["1", "curl/8"]]
    assert shown(gaps) == [["2", "60"]]
    assert shown(robots) == [["[31/Dec/2026:23:59:58", "200"]]
    assert shown(denied) == [
        ["https://blog.example/private/it's:", "denied", "for", "Walsh-Research"]
    ]


def test_a_common_log_is_read_by_address(shown):
    agents, gaps, robots, _ = (
        line.replace("access.log", "common.log").replace("/Walsh-Research/", '$1 == "192.0.2.1"')
        for line in AWK
    )
    assert shown(agents.replace("$6", "$1").replace("-F'\"'", "")) == [
        ["4", "192.0.2.1"],
        ["1", "192.0.2.9"],
    ]
    assert shown(gaps) == [["2", "60"]]
    assert shown(robots) == [["[31/Dec/2026:23:59:58", "200"]]


def test_sql_shows_the_same_and_gaps_over_midnight(shown):
    loading, agents, gaps, robots = SQL
    assert shown(loading, agents) == [f"{AGENT}|4|1".split(), ["curl/8|1|1"]]
    assert shown(gaps) == [["4|1"], ["60|2"]]
    assert shown(robots) == [["[31/Dec/2026:23:59:58|200"]]
