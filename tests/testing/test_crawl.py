"""`run_crawl` runs a real Scrapy in front of the web; here that of a small project of its own."""

import signal
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from scrapy.settings import Settings

from tests.helpers import execute
from tests.helpers.sites import feed, site, write_project
from walsh_scrapy.addon import Addon
from walsh_scrapy.testing import demo as demo_module
from walsh_scrapy.testing import simulated as module
from walsh_scrapy.testing.crawl import (
    find_project,
    read_items,
    read_stats,
    run_crawl,
    start_crawl,
    write_sources,
)
from walsh_scrapy.testing.demoweb import SOURCES, demo_web, timeline
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.simulation import DAY, EPOCH, FakeClock, SimulatedTime
from walsh_scrapy.testing.web import Fault, Reply, Site

SPIDER = """
import tomllib
from pathlib import Path
import scrapy

class Feeds(scrapy.Spider):
    name = "feeds"
    greeting = "none"

    async def start(self):
        text = Path(self.settings["WALSH_SOURCES"]).read_text()
        print("sources read,", self.greeting)
        for source in tomllib.loads(text)["source"]:
            yield scrapy.Request(source["url"], dont_filter=True)

    def parse(self, response):
        yield {"url": response.url, "title": response.xpath("//title/text()").get()}
"""
FEED = "http://blog.example/feed.xml"

DUMPED = """\
2026-01-01 [scrapy.statscollectors] INFO: Dumping Scrapy stats:
{'a': 1,
 't': datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)}
2026-01-01 [scrapy.core.engine] INFO: {'b': 2}
"""


@pytest.fixture
def project(tmp_path):
    """A Scrapy project with one spider, without any of our gates."""
    settings = 'SPIDER_MODULES = ["theirs.feeds"]\nROBOTSTXT_OBEY = False\nDOWNLOAD_DELAY = 0\n'
    return write_project(tmp_path / "project", settings, feeds=SPIDER)


@pytest.fixture
def web(loopback_web):
    page = Reply(rss("Blog", ["One"]), content_type="application/rss+xml")
    return loopback_web(Site("blog.example", pages={"/feed.xml": page, "/slow": Reply(delay=60)}))


def test_a_run_returns_items_stats_and_the_log_of_the_server(web, project, crawl):
    result = crawl(web, project=project, sources=[FEED, FEED], arguments={"greeting": "hello"})
    assert result.exit_code == 0, result.stderr
    assert result.items == [{"url": FEED, "title": "Blog"}] * 2
    assert result.stdout == "sources read, hello\n"
    assert result.stats["item_scraped_count"] == 2
    assert result.stats["finish_reason"] == "finished"
    assert [hit.url for hit in result.log] == [FEED, FEED]
    assert {sentence[:2] for sentence in violations(result.log)} == {"R1", "R2", "R4"}
    assert result.seconds > 0


# Without the fixture `crawl`, as in other projects, each crawl is an ordinary process.
@pytest.mark.crawl
def test_runs_share_a_folder_and_have_their_own_log(web, project, tmp_path):
    options = {"folder": tmp_path / "runs", "project": project, "sources": [FEED]}
    first = run_crawl(web, settings={"USER_AGENT": "x", "LOG_LEVEL": "ERROR"}, **options)
    second = run_crawl(web, **options)
    assert (first.stats, first.stderr) == ({}, "")
    assert first.log[0].header("User-Agent") == "x"
    assert len(first.log) == len(second.log) == 1
    assert first.folder.parent == second.folder.parent == tmp_path / "runs"


def test_https_does_not_leave_the_web(web, project, crawl):
    result = crawl(
        web, project=project, sources=["https://blog.example/"], settings={"RETRY_ENABLED": 0}
    )
    assert [(hit.method, hit.host) for hit in result.log] == [("CONNECT", "blog.example")]


def test_kill_when_the_log_reaches_a_moment(web, project, crawl):
    sources = [FEED, "http://blog.example/slow"]
    result = crawl(web, project=project, sources=sources, kill_when=lambda log: len(log) == 2)
    assert result.exit_code == -signal.SIGKILL
    # This project asks for both at once; which of them the server reads first is anybody's guess.
    assert {hit.path: hit.complete for hit in result.log} == {"/feed.xml": True, "/slow": False}


def test_a_crawl_that_ends_first_is_not_killed(web, project, crawl):
    result = crawl(web, project=project, sources=[FEED], kill_when=lambda log: len(log) == 9)
    assert (result.exit_code, len(result.items)) == (0, 1)


def test_a_crawl_that_takes_too_long_is_killed(web, project, crawl):
    with pytest.raises(TimeoutError, match="killed after 1 s"):
        crawl(web, project=project, sources=["http://blog.example/slow"], timeout=1)


@pytest.mark.crawl
def test_a_crawl_does_not_outlive_its_block(web, project, tmp_path):
    sources = write_sources(tmp_path / "mine.toml", ["http://blog.example/slow"])
    with start_crawl(web, folder=tmp_path, project=project, sources=sources) as crawl:
        assert web.wait_for(lambda log: len(log) == 1, 300)
        assert crawl.running
    assert not crawl.running


def test_the_crawl_can_be_asked_to_end(web, project, crawl):
    web.add(Site("blog.example", pages={"/": Reply(delay=0.5)}))
    started = crawl.start(web, project=project, sources=["http://blog.example/"])
    assert web.wait_for(lambda log: len(log) == 1, 300)
    started.terminate()
    result = started.wait()
    assert (result.exit_code, result.stats["finish_reason"]) == (0, "shutdown")


def test_a_crawl_of_no_spider_raises(web, project, crawl):
    with pytest.raises(RuntimeError, match="Spider not found: nosuch"):
        crawl(web, "nosuch", project=project)


def test_the_project_is_looked_for_upward(project, tmp_path):
    assert find_project(project / "theirs") == project
    with pytest.raises(FileNotFoundError, match=r"no scrapy\.cfg in"):
        find_project(tmp_path)


def test_sources_are_written_as_toml_or_as_a_list(tmp_path):
    entries = ["http://a.example/", {"url": "http://b.example/", "name": 'é "😀"', "tags": ["x"]}]
    toml = write_sources(tmp_path / "s.toml", entries)
    assert tomllib.loads(toml.read_text())["source"] == [{"url": entries[0]}, entries[1]]
    text = write_sources(tmp_path / "s.txt", entries)
    assert text.read_text() == "http://a.example/\nhttp://b.example/\n"


def test_items_cut_short_by_a_kill_are_left_out(tmp_path):
    path = tmp_path / "items.jsonl"
    assert read_items(path) == []
    path.write_text('{"a": "\u2028"}\n{"a": ', encoding="utf-8")
    assert read_items(path) == [{"a": "\u2028"}]


@pytest.mark.parametrize(
    ("log", "stats"),
    [
        ("", {}),
        ("Dumping Scrapy stats:\n{'a': object()}\n", {}),
        (DUMPED, {"a": 1, "t": "2026, 1, 1, tzinfo=datetime.timezone.utc"}),
    ],
)
def test_stats_are_read_from_the_log(log, stats):
    assert read_stats(log) == stats


# A simulation is a real crawl, except for its clock and its web.

FEED_SIMULATION = "http://blog.example/feed"


def broken(_hit):
    raise ValueError("no page")


def test_runs_begin_at_their_starts_and_return_results(simulated):
    blog = site("blog.example", feed=feed(etag='"1"', delay=5.0))
    first, second = simulated(blog, starts=[60.0, 2 * DAY], sources=[FEED_SIMULATION])
    robots, page = first.log
    assert (robots.started, robots.wall) == (60.0, EPOCH + 60.0)
    assert page.ended - page.started >= 5.0
    assert 6.0 < first.seconds < 10.0
    assert page.header("Host") == "blog.example"
    assert [item["title"] for item in first.items] == ["One", "Two"]
    assert first.stats["item_scraped_count"] == 2
    assert "new entries       2" in first.stderr
    assert second.log[0].started == 2 * DAY
    assert [(hit.path, hit.status) for hit in second.log] == [("/robots.txt", 200), ("/feed", 304)]
    assert second.items == []
    assert "new entries       2" not in second.stderr


def test_a_run_waits_for_the_end_of_the_last(simulated):
    blog = site("blog.example", feed=feed(delay=20.0))
    options = {"sources": [FEED_SIMULATION], "arguments": {"force": "1"}}
    first, second = simulated(blog, starts=[0.0, 1.0], **options)
    assert second.log[0].started >= first.log[-1].ended


def test_the_web_answers_as_the_one_on_sockets_does(simulated):
    pages = {
        "image": Reply(b"\x89PNG", content_type="image/png"),
        "packed": Reply(feed().body, content_type="application/rss+xml", gzip=True),
        "reset": Reply(fault=Fault.RESET),
        "slow": feed(delay=100.0),
        "missing": Reply(status=404),
    }
    (result,) = simulated(
        *(site(f"{name}.example", feed=page) for name, page in pages.items()),
        Site("secure.example", "", {"/feed?x": feed(host="secure.example")}),
        sources=[f"http://{name}.example/feed" for name in (*pages, "nowhere")]
        + ["https://secure.example/feed?x"],
        settings={"RETRY_TIMES": 0},
    )
    answers = {hit.host: hit for hit in result.log if hit.path.startswith("/feed")}
    assert {host: hit.status for host, hit in answers.items()} == {
        "image.example": 200,
        "packed.example": 200,
        "reset.example": 0,
        "slow.example": 0,
        "missing.example": 404,
        "nowhere.example": 502,
        "secure.example": 200,
    }
    whole = {host for host, hit in answers.items() if hit.complete}
    assert whole == {"packed.example", "missing.example", "nowhere.example", "secure.example"}
    assert answers["slow.example"].ended - answers["slow.example"].started == pytest.approx(30.0)
    assert answers["secure.example"].url == "https://secure.example/feed?x"
    assert {item["source"].split("/")[2] for item in result.items} == {
        "packed.example",
        "secure.example",
    }
    assert "slow.example timed out" in result.stderr


@pytest.mark.parametrize("name", [Addon, "walsh_scrapy.Addon", "walsh_scrapy.addon.Addon"])
def test_the_add_on_of_a_project_is_replaced_whatever_its_name(monkeypatch, name):
    own = {name: 500, "nowhere.Addon": None, "builtins.dict": 600}
    monkeypatch.setattr(module, "get_project_settings", lambda: Settings({"ADDONS": own}))
    settings = module.Simulation([], SimulatedTime())._settings(Path("items.jsonl"), {})
    assert dict(settings["ADDONS"]) == {"builtins.dict": 600, module.SimulatedAddon: 500}


def test_an_error_of_the_simulation_is_raised_with_its_log(simulated):
    with pytest.raises(RuntimeError, match="mysterydb"):
        simulated(
            site("blog.example"),
            sources=[FEED_SIMULATION],
            settings={"WALSH_STATE_URL": "mysterydb://x/y"},
        )


def test_a_spider_that_the_project_does_not_have_is_named(simulated):
    with pytest.raises(RuntimeError, match="'pages'"):
        simulated(site("blog.example"), spider="pages")


def test_a_page_that_raises_fails_its_source_alone(simulated):
    (result,) = simulated(
        site("blog.example"),
        site("broken.example", feed=broken),
        sources=[FEED_SIMULATION, "http://broken.example/feed"],
    )
    assert "no page" in result.stderr
    assert len(result.items) == 2


def test_a_run_may_begin_years_later(simulated):
    (result,) = simulated(site("blog.example"), sources=[FEED_SIMULATION], starts=[2000.5 * DAY])
    assert [hit.status for hit in result.log] == [200, 200]


def test_the_clock_moves_only_by_advance(walsh_fake_clock):
    assert walsh_fake_clock.now() == walsh_fake_clock.now()
    assert walsh_fake_clock.datetime() == datetime(2026, 1, 1, tzinfo=UTC)
    assert walsh_fake_clock.advance(1.5) == walsh_fake_clock.now()
    walsh_fake_clock.advance(timedelta(days=1))
    assert walsh_fake_clock.datetime() == datetime(2026, 1, 2, 0, 0, 1, 500_000, tzinfo=UTC)
    with pytest.raises(ValueError, match="go back"):
        walsh_fake_clock.advance(-1)


def test_the_clock_starts_at_the_given_time():
    start = datetime(2030, 1, 1, tzinfo=UTC)
    assert FakeClock(start).now() == start.timestamp() == FakeClock(start.timestamp()).now()


# `walsh demo` runs both crawls, fails if a rule is broken, and shows what its web serves.

SITES, _ = demo_web()


@pytest.mark.long
def test_every_source_has_a_site_with_a_description():
    hosts = {site.host for site in SITES}
    assert len(hosts) == len(SITES) == 16
    assert {urlsplit(source).hostname for source in SOURCES} <= hosts
    assert all(site.description for site in SITES)


@pytest.fixture(scope="module")
def demo(pytestconfig):
    return execute(sys.executable, "-m", "walsh_scrapy", "demo", cwd=pytestconfig.rootpath)


@pytest.mark.long
def test_the_demo_breaks_no_rule_and_says_so(demo):
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "No rule was broken." in demo.stdout
    assert "Traceback" not in demo.stderr


@pytest.mark.long
def test_the_demo_shows_the_requests_of_every_host(demo):
    for demo_site in SITES:
        assert f" {demo_site.host} " in demo.stdout
    for shown in ("no byte sent", "429", "503", "301", "304", "Crawl-delay: 2", "HTML"):
        assert shown in demo.stdout
    assert "http://blog.example/feed.xml" in demo.stdout
    assert demo.stdout.count("at most 1 open") == 2
    for found in ("; 21 new entries, ", "; 1 new entry, "):
        assert found in demo.stdout


@pytest.mark.crawl
@pytest.mark.long
def test_a_broken_rule_or_a_lost_source_is_exit_status_1(monkeypatch, capsys):
    monkeypatch.setattr(demo_module, "violations", lambda *_args, **_terms: ["R9: invented"])
    monkeypatch.setattr("walsh_scrapy.testing.demoweb.SOURCES", SOURCES[:1])
    assert demo_module.run(None) == 1
    assert "R9: invented" in capsys.readouterr().out


@pytest.mark.long
def test_a_host_without_requests_is_shown_as_such():
    assert timeline([]) == "no byte sent"
