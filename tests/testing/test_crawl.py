"""`run_crawl` runs a real Scrapy in front of the web; here that of a small project of its own."""

import signal
import tomllib

import pytest

from tests.helpers.sites import write_project
from walsh_scrapy.testing.crawl import (
    find_project,
    read_items,
    read_stats,
    run_crawl,
    start_crawl,
    write_sources,
)
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.web import Reply, Site

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
