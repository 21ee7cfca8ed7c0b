"""A project chooses how often a refused request is sent again, and the host's hold stays."""

import pytest

from tests.helpers.sites import ADDON, IDENTITY, feed, paths, site, write_project
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site

SPIDER = """
from scrapy import Request

from tests.helpers.theirs import Urls

META = {
    "never": {"dont_retry": True},
    "once": {"max_retry_times": 1},
    "handled": {"handle_httpstatus_list": [429, 503]},
}


class Chooser(Urls):
    name = "chooser"

    async def start(self):
        for host, meta in META.items():
            for number in range(1, 3):
                url = f"http://{host}.example/{number}"
                yield Request(url, meta=dict(meta), errback=self.ended)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}

"""
HOSTS = ("never", "once", "handled")


@pytest.fixture
def web(direct_web):
    busy = Reply("busy", 429, headers={"Retry-After": "2"})
    return direct_web(*(Site(f"{host}.example", "", {"/1": busy, "/2": "text"}) for host in HOSTS))


@pytest.mark.long
def test_the_project_chooses_and_the_hold_stays(web, crawl, tmp_path, installed):
    project = write_project(tmp_path / "project", ADDON | IDENTITY, spiders=SPIDER)
    result = crawl(web, "chooser", project=project)
    requested = paths(result.log)
    assert {host: requested.count(f"{host}.example/1") for host in HOSTS} == {
        "never": 1,
        "once": 2,
        "handled": 1,
    }
    assert [item for item in result.items if "status" in item and item["status"] == 429] == [
        {"url": "http://handled.example/1", "status": 429}
    ]
    assert all(f"{host}.example/2" in requested for host in HOSTS)
    assert_polite(result.log, serial=True, user_agent=IDENTITY["WALSH_USER_AGENT"])


def test_under_our_identity_the_choice_is_ignored(simulated):
    busy = [Reply(status=503), Reply(status=503), feed()]
    urls = ["http://blog.example/feed", "http://news.example/feed"]
    sites = [site("blog.example", feed=busy), site("news.example", feed=busy)]
    (result,) = simulated(*sites, starts=[0.0], sources=urls, settings={"RETRY_ENABLED": False})
    assert paths(result.log).count("blog.example/feed") == 3
    (line,) = [line for line in result.stderr.splitlines() if "RETRY_ENABLED" in line]
    assert "WARNING" in line
