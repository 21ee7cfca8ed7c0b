"""The signal ``robots_parsed``, and stats under the names of Scrapy."""

import pytest

from tests.helpers.sites import ADDON, AGENT, IDENTITY, paths, write_project
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site

SPIDER = """
from scrapy import Request, signals

from tests.helpers.theirs import Urls


class Listening(Urls):
    name = "listening"

    @classmethod
    def from_crawler(cls, crawler, **arguments):
        spider = super().from_crawler(crawler, **arguments)
        crawler.signals.connect(spider.parsed, signal=signals.robots_parsed)
        return spider

    async def parsed(self, robotparser, request):
        host = request.url.partition("://")[2].partition("/")[0]
        allowed = [robotparser.allowed(request.url, name) for name in ("Example-Bot", "Other")]
        response = await self.crawler.engine.download_async(Request(f"http://{host}/listener"))
        self.logger.warning("parsed %s %s %s", host, allowed, response.status)
"""


@pytest.fixture
def run(crawl, tmp_path, installed):
    def run_spider(web, *urls, **settings):
        project = write_project(tmp_path / "project", ADDON | IDENTITY | settings, spiders=SPIDER)
        return crawl(web, "listening", project=project, arguments={"urls": " ".join(urls)})

    return run_spider


def parsed(result):
    lines = [line for line in result.stderr.splitlines() if "WARNING: parsed " in line]
    return [line.partition("parsed ")[2] for line in lines]


@pytest.mark.long
def test_the_signal_is_sent_once_per_origin_and_crawl(direct_web, run):
    robots = "User-agent: Other\nDisallow: /\n"
    pages = {f"/{name}": "text" for name in ("1", "2", "listener")}
    web = direct_web(Site("a.example", robots, pages), Site("b.example", Reply(status=404), pages))
    urls = [f"http://{host}.example/{number}" for host in "ab" for number in (1, 2)]
    first = run(web, *urls)
    assert sorted(parsed(first)) == ["a.example [True, False] 200", "b.example [True, True] 200"]
    assert {item["url"] for item in first.items} == set(urls)
    assert_polite(first.log, serial=True, user_agent=AGENT)
    counted = {
        "robotstxt/request_count": 2,
        "robotstxt/response_count": 2,
        "robotstxt/response_status_count/200": 1,
        "robotstxt/response_status_count/404": 1,
        "scheduler/enqueued": 4,
        "scheduler/enqueued/memory": 4,
        "scheduler/dequeued": 4,
        "scheduler/dequeued/memory": 4,
    }
    assert {name: first.stats.get(name) for name in counted} == counted

    second = run(web, *urls)
    assert sorted(parsed(second)) == sorted(parsed(first)), "for the copies of the state"
    assert "a.example/robots.txt" not in paths(second.log)


@pytest.mark.long
def test_nothing_is_sent_while_robots_txt_is_unreachable(direct_web, run):
    web = direct_web(Site("a.example", Reply(status=500), {"/1": "text", "/listener": "text"}))
    settings = {"WALSH_ROBOTS_UNREACHABLE": "allow", "WALSH_MAX_RETRIES": 1}
    result = run(web, "http://a.example/1", WALSH_BACKOFF_BASE=1.0, **settings)
    assert [item["url"] for item in result.items] == ["http://a.example/1"]
    assert parsed(result) == []
    assert result.stats["robotstxt/response_status_count/500"] == 1
    assert result.stats["retry/count"] == 1
    assert result.stats["retry/reason_count/500 Internal Server Error"] == 1
    assert result.stats["retry/max_reached"] == 1
