"""`scrapy hosts`: who rests, until when and why; and every command says the same of it."""

import json

import pytest

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.testing.web import Reply

BUSY = "http://busy.example/feed"
FIELDS = [
    "host", "waits", "until", "why", "hold_until", "hold_by", "hold_status", "interval", "pause",
    "strikes", "silences", "server_errors", "asked_at", "last_act",
]  # fmt: skip


@pytest.fixture
def scrapy(tmp_path, run_scrapy):
    """Run a command on the state that the crawls of this test share."""

    def run(command, *arguments):
        settings = {
            "WALSH_STATE_URL": f"sqlite:///{tmp_path / 'crawl' / 'walsh.sqlite3'}",
            "WALSH_SOURCES": tmp_path / "sources.txt",
        }
        given = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
        return run_scrapy(command, *given, *arguments)

    return run


def test_a_hold_of_a_year_is_told_by_every_command_and_can_be_lifted(
    direct_web, crawl, scrapy, tmp_path
):
    year = Reply(status=429, headers={"Retry-After": "31536000"})
    web = direct_web(
        site("busy.example", feed=[year, feed(host="busy.example")]), site("blog.example")
    )
    sources = [BUSY, "http://blog.example/feed"]
    (tmp_path / "sources.txt").write_text("".join(f"{source}\n" for source in sources))
    crawl(web, sources=sources)
    busy, *_ = json.loads(scrapy("hosts", "--json").stdout)  # the longest wait is the first
    assert list(busy) == FIELDS
    assert (busy["host"], busy["waits"], busy["strikes"]) == ("busy.example", "hold", 1)
    assert busy["why"] == ("on hold: it answered 429 and asked for a pause of 365 d (Retry-After)")
    assert (busy["hold_by"], busy["hold_status"]) == ("retry-after", 429)
    held = f"busy.example is on hold until {busy['hold_until'].replace('T', ' ')[:-1]} UTC"

    listed = scrapy("sources").stdout
    (line,) = [line for line in listed.splitlines() if BUSY in line]
    assert f"due, but {held}" in line
    assert "  now  " not in line
    assert listed.splitlines()[-1].endswith("0 due now, 1 due but on hold")
    assert f"as before, but {held}" in scrapy("sources", "resume", BUSY).stdout
    forgotten = scrapy("sources", "forget", BUSY).stdout
    assert f"is forgotten: its next visit is its first; {held}, and that stays" in forgotten
    answer = scrapy("mayfetch", "--offline", BUSY)
    assert answer.stdout.startswith(f"{BUSY}: allowed, but {held}\n")

    again = crawl(web, sources=sources, arguments={"force": "1"})
    assert paths(again.log, "busy.example") == []
    released = scrapy("hosts", "release", BUSY, "--because", "they wrote: go on")
    assert released.returncode == 0
    assert released.stdout.startswith("busy.example may be asked again; 364 d 23 h ")
    last = crawl(web, sources=sources)
    assert paths(last.log, "busy.example") == ["busy.example/feed"]
    assert len(last.items) == 2
    kept = rows_of(tmp_path / "crawl", "SELECT host, act, reason FROM acts")
    assert kept == [("busy.example", "release", "they wrote: go on")]


def test_a_pause_outlasts_runs_and_needs_no_crawl_before_it(scrapy, tmp_path):
    set_to = scrapy("hosts", "pause", "Blog.Example.", "PT2H", "--because", "a relaunch")
    assert "is at blog.example, and no crawl asked it for anything" in set_to.stderr
    assert scrapy("hosts", "pause", "blog.example", "2h").stderr == "", "it is known by now"
    assert scrapy("hosts", "pause", "blog.example", "7200").stdout == set_to.stdout
    assert set_to.stdout == (
        "blog.example gets one request every 2 h at most, until `scrapy hosts pause blog.example "
        "0`\n"
    )
    *_, row, total = scrapy("hosts").stdout.splitlines()
    assert "you asked for a pause of 2 h between requests" in row
    assert total == "0 hosts may not be asked now, 0 of them on hold"
    assert (
        "over 12 h it may be asked for its robots.txt alone"
        in scrapy("hosts", "pause", "blog.example", "1d", "--because", "a relaunch").stdout
    )
    assert scrapy("hosts").stdout.splitlines()[-2].endswith(": a relaunch")
    assert scrapy("hosts", "pause", "blog.example", "0").returncode == 0
    assert json.loads(scrapy("hosts", "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["release", "busy.example"], 2, "--because"),
        (["release", "busy.example", "--because", " "], 2, "--because"),
        (["release", "busy.example", "--because", "a\nb"], 2, "one line"),
        (["release", "busy.example", "--because", "x"], 1, "busy.example is not on hold"),
        (["pause", "busy.example"], 2, "seconds"),
        (["pause", "busy.example", "-1"], 2, "-1"),
        (["pause", "busy.example", "inf"], 2, "seconds"),
        (["pause", "busy.example", "2 hours"], 2, "pause blog.example 2h"),
        (["pause", "", "1"], 2, "is no host"),
        (["--because", "x"], 2, "--because"),
        (["forget", "busy.example"], 2, "`release HOST`"),
        (["--nope"], 2, "--nope"),
    ],
)
def test_a_wrong_call_is_one_line(scrapy, arguments, status, words):
    result = scrapy("hosts", *arguments)
    assert (result.returncode, result.stderr.count("\n")) == (status, 1)
    assert words in result.stderr
    assert result.stdout == ""
