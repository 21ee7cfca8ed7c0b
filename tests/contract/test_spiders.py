"""Whatever a spider does, the gates stand: it is run in a copy of the project, on the real web."""

import shutil

import pytest

from tests.contract.conftest import paths, site
from walsh_scrapy.testing.politeness import assert_polite

SPIDER = """
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from walsh_scrapy.spider import SourcesSpider


class OwnSpider(SourcesSpider):
    name = "own"
    kind = "feed"
    accept = "*/*"
    custom_settings = {"USER_AGENT": "own", "CONCURRENT_REQUESTS": 8, "ROBOTSTXT_OBEY": False}

"""
BODIES = {
    "yields_a_body": """
    def parse(self, response, source):
        yield {"body": response.text}
""",
    "raises": """
    def parse(self, response, source):
        raise RuntimeError("reading failed")
""",
    "follows_links": """
    def parse(self, response, source):
        yield response.follow("/secret", self.parse, cb_kwargs={"source": source})
        yield Request("http://other.example/feed", self.parse, meta=response.meta)
        yield response.follow("/feed", method="POST", dont_filter=True)
""",
    "asks_the_engine": """
    async def parse(self, response, source):
        for url in ("http://blog.example/secret", "http://other.example/feed"):
            try:
                answer = await self.crawler.engine.download_async(Request(url))
                self.logger.error("GOT %s", answer)
            except IgnoreRequest as denied:
                self.logger.warning("denied: %s", denied)
        self.crawler.engine.crawl(Request("http://other.example/feed"))
        return []
""",
}


@pytest.fixture
def run(loopback_web, crawl, tmp_path, pytestconfig):
    """Run a spider of one's own, beside those of the project."""

    def run_spider(name):
        project = tmp_path / "project"
        spiders = shutil.copytree(pytestconfig.rootpath / "spiders", project / "spiders")
        (spiders / "own.py").write_text(SPIDER + BODIES[name])
        (project / "walsh_scrapy").symlink_to(pytestconfig.rootpath / "walsh_scrapy")
        shutil.copy(pytestconfig.rootpath / "scrapy.cfg", project)
        web = loopback_web(
            site("blog.example", "User-agent: *\nDisallow: /secret\n"), site("other.example")
        )
        return crawl(web, "own", sources=["http://blog.example/feed"], project=project)

    return run_spider


def test_no_item_leaves_that_is_more_than_metadata(run):
    result = run("yields_a_body")
    assert result.items == []
    assert "an item is left out" in result.stderr


def test_an_error_of_a_spider_is_logged_and_fails_its_source(run):
    result = run("raises")
    assert result.stats["walsh/sources/failed"] == 1
    assert "http://blog.example/feed failed: RuntimeError: reading failed" in result.stderr


@pytest.mark.parametrize(
    ("name", "end"), [("follows_links", "dropped"), ("asks_the_engine", "denied")]
)
def test_no_undeclared_url_is_requested_in_any_way(run, name, end):
    result = run(name)
    assert result.stats[f"walsh/scope/{end}"] == 3
    assert result.exit_code == 0
    assert paths(result.log) == ["blog.example/robots.txt", "blog.example/feed"]
    assert "GOT" not in result.stderr
    assert_polite(result.log)
