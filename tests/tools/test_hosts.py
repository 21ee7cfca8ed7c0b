"""`scrapy hosts`: which hosts wait, until when and why; every command says the same of it."""

import json

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.testing.web import Reply
from walsh_scrapy.tools.hosts import COLUMNS

BUSY = "http://busy.example/feed"


def test_a_hold_of_a_year_is_told_by_every_command_and_can_be_lifted(
    direct_web, crawl, on_state, tmp_path
):
    year = Reply(status=429, headers={"Retry-After": "31536000"})
    web = direct_web(
        site("busy.example", feed=[year, feed(host="busy.example")]), site("blog.example")
    )
    sources = [BUSY, "http://blog.example/feed"]
    (tmp_path / "sources.txt").write_text("".join(f"{source}\n" for source in sources))
    crawl(web, sources=sources)
    busy, *_ = json.loads(on_state("hosts", "--json").stdout)  # the longest wait is the first
    assert list(busy) == [column.name for column in COLUMNS]
    assert (busy["host"], busy["waits"], busy["refusals"]) == ("busy.example", "hold", 1)
    assert busy["why"] == "on hold: it answered 429 and asked for 365 d (Retry-After)"
    assert (busy["hold_by"], busy["hold_status"]) == ("retry-after", 429)
    held = f"busy.example is on hold until {busy['hold_until'].replace('T', ' ')[:-1]} UTC"

    listed = on_state("sources").stdout
    (line,) = [line for line in listed.splitlines() if BUSY in line]
    assert f"due, but {held}" in line
    assert "  now  " not in line
    assert listed.splitlines()[-1].endswith("0 due now, 1 due but on hold")
    assert f"due, but {held}, as before" in on_state("sources", "resume", BUSY).stdout
    answer = on_state("mayfetch", "--offline", BUSY)
    assert answer.stdout.startswith(f"{BUSY}: allowed, but {held}\n")

    again = crawl(web, sources=sources, arguments={"force": "1"})
    assert paths(again.log, "busy.example") == []
    released = on_state("hosts", "release", BUSY, "--because", "they wrote: go on")
    assert released.returncode == 0
    assert released.stdout.startswith("busy.example may be requested again; 364 d 23 h ")
    last = crawl(web, sources=sources)
    assert paths(last.log, "busy.example") == ["busy.example/feed"]
    assert len(last.items) == 2
    kept = rows_of(tmp_path / "crawl", "SELECT host, override, reason FROM overrides")
    assert kept == [("busy.example", "release", "they wrote: go on")]


def test_an_operators_delay_outlasts_runs_and_needs_no_crawl_before_it(on_state):
    set_to = on_state("hosts", "delay", "Blog.Example.", "PT2H", "--because", "a relaunch")
    assert "is at blog.example, and no crawl requested anything there" in set_to.stderr
    assert on_state("hosts", "delay", "blog.example", "2h").stderr == "", "it is known by now"
    assert on_state("hosts", "delay", "blog.example", "7200").stdout == set_to.stdout
    assert set_to.stdout == (
        "blog.example gets one request every 2 h at most, until `scrapy hosts delay blog.example "
        "0`\n"
    )
    *_, row, total = on_state("hosts").stdout.splitlines()
    assert "you gave it a delay of 2 h" in row
    assert total == "0 hosts may not be requested now, 0 of them on hold"
    assert (
        "over 12 h its robots.txt alone may be requested"
        in on_state("hosts", "delay", "blog.example", "1d", "--because", "a relaunch").stdout
    )
    assert on_state("hosts").stdout.splitlines()[-2].endswith(" a relaunch")
    assert on_state("hosts", "delay", "blog.example", "0").returncode == 0
    assert json.loads(on_state("hosts", "--json").stdout) == []
