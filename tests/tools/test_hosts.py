"""`walsh hosts`: the hosts that wait, and why; every command says the same of it."""

import json

import pytest

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.testing.web import Reply

BUSY = "http://busy.example/feed"


SOURCES = [BUSY, "http://blog.example/feed"]


@pytest.fixture
def busy_web(direct_web, crawl, tmp_path):
    """A web after a first crawl, in which a host answered 429 and asked for a year."""
    year = Reply(status=429, headers={"Retry-After": "31536000"})
    web = direct_web(
        site("busy.example", feed=[year, feed(host="busy.example")]), site("blog.example")
    )
    (tmp_path / "sources.txt").write_text("".join(f"{source}\n" for source in SOURCES))
    crawl(web, sources=SOURCES)
    return web


@pytest.mark.usefixtures("busy_web")
def test_hold_of_a_year_is_shown_by_all_commands(on_state):
    busy = json.loads(on_state("hosts", "--json").stdout.splitlines()[0])
    assert (busy["host"], busy["problem"], busy["refusals"]) == ("busy.example", "hold", 1)
    assert "365 d" in busy["reason"]
    assert (busy["hold_by"], busy["hold_status"]) == ("retry-after", 429)
    source = json.loads(on_state("sources", BUSY, "--json").stdout)
    assert (source["is_due"], source["next_visit"]) == (True, busy["hold_until"])
    assert busy["hold_until"] in on_state("sources", "resume", BUSY).stdout
    answer = on_state("mayfetch", "--offline", BUSY).stdout
    assert answer.startswith(f"{BUSY}: allowed, but ")
    assert busy["hold_until"].replace("T", " ")[:-1] in answer


def test_hold_lasts_until_the_operator_releases_it(busy_web, crawl, on_state, tmp_path):
    again = crawl(busy_web, sources=SOURCES, arguments={"force": "1"})
    assert paths(again.log, "busy.example") == []
    released = on_state("hosts", "release", BUSY, "--because", "they wrote: go on")
    assert released.returncode == 0
    assert "364 d 23 h" in released.stdout
    last = crawl(busy_web, sources=SOURCES)
    assert paths(last.log, "busy.example") == ["busy.example/feed"]
    assert len(last.items) == 2
    overrides = rows_of(tmp_path / "crawl", "SELECT host, override, reason FROM overrides")
    assert overrides == [("busy.example", "release", "they wrote: go on")]


def test_operator_delay_is_the_same_in_every_spelling(on_state):
    first = on_state("hosts", "delay", "Blog.Example.", "PT2H", "--because", "a relaunch")
    assert "every 2 h" in first.stdout
    assert on_state("hosts", "delay", "blog.example", "2h").stdout == first.stdout
    assert on_state("hosts", "delay", "blog.example", "7200").stdout == first.stdout


def test_operator_delay_warns_about_an_unknown_host_once(on_state):
    assert "blog.example" in on_state("hosts", "delay", "blog.example", "2h").stderr
    assert on_state("hosts", "delay", "blog.example", "2h").stderr == ""


@pytest.mark.parametrize(
    ("delay", "words"),
    [
        ("600", []),
        ("2h", ["WALSH_MAX_WAIT (15 min)"]),
        ("2d", ["WALSH_MAX_WAIT (15 min)", "robots.txt", "every 4 d"]),
    ],
)
def test_a_long_operator_delay_says_what_it_means(on_state, delay, words):
    first, *others = on_state("hosts", "delay", "blog.example", delay).stdout.splitlines()
    assert "blog.example" in first
    assert len(others) == min(2, len(words))
    assert all(word in "".join(others) for word in words)


def test_operator_delay_is_listed_with_its_reason_until_it_is_0(on_state):
    on_state("hosts", "delay", "blog.example", "2h", "--because", "a relaunch")
    (row,) = map(json.loads, on_state("hosts", "--json").stdout.splitlines())
    assert (row["host"], row["operator_delay"], row["problem"]) == ("blog.example", 7200.0, None)
    assert (row["last_override"], row["last_override_reason"]) == ("delay", "a relaunch")
    assert on_state("hosts", "delay", "blog.example", "0").returncode == 0
    assert on_state("hosts", "--json").stdout == ""
