"""The gates hold whatever a spider does. Spiders run in a copy of the project."""

import pytest

from tests.helpers.sites import judge, paths, site
from walsh_scrapy.testing.web import Reply, Site

SPIDER = """
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from walsh_scrapy.items import EntryItem
from walsh_scrapy.metadata.llmstxt import parse_llms
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
    "yields_and_goes_on": """
    kind = "llms"

    def parse(self, response, source, last=False):
        if not last:
            yield self.request(source, response.urljoin("/llms.txt"), "*/*", bool, last=True)
        feed = parse_llms(
            response.body, url=response.url, content_type=None, source=source.url
        )
        yield feed
        for entry in feed.entries:
            yield EntryItem.of_feed(entry, feed=feed, source=source.url, kind="llms")
        for number in range(9):
            yield EntryItem(kind="llms", source=source.url, title="x" * 301, section=str(number))
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
def run(direct_web, crawl, project_with):
    """Run an additional spider, beside those of the project."""

    def run_spider(name, **options):
        project = project_with(SPIDER + BODIES[name])
        web = direct_web(
            site("blog.example", "User-agent: *\nDisallow: /secret\n"),
            site("other.example"),
            Site("docs.example", "", {f"/{path}": markdown(path) for path in ("home", "llms.txt")}),
        )
        source = "http://blog.example/feed"
        if name == "yields_and_goes_on":
            source = {"url": "http://docs.example/home", "kind": "llms"}
        return crawl(web, "own", sources=[source], project=project, **options)

    return run_spider


def markdown(path):
    links = "\n".join(f"- [{path} {number}](/{path}/{number})" for number in range(3))
    return Reply(f"# Docs\n\n{links}\n", content_type="text/markdown")


def test_no_item_leaves_that_is_more_than_metadata(run):
    result = run("yields_a_body")
    assert result.items == []
    assert "an item is left out" in result.stderr


def test_items_of_a_document_after_which_the_visit_goes_on_are_kept_and_known(run):
    result = run("yields_and_goes_on")
    urls = [
        f"http://docs.example/{path}/{number}"
        for path in ("home", "llms.txt")
        for number in range(3)
    ]
    assert [item["url"] for item in result.items] == urls
    assert result.stats["walsh/entries/new"] == 6
    assert result.stats["walsh/sources/fetched"] == 1
    assert result.stderr.count("an item is left out: ") == 6, "three of each document"
    assert "items of http://docs.example/home are left out: … and 6 more" in result.stderr
    second = run("yields_and_goes_on", arguments={"force": "1"})
    assert (second.items, second.stats["walsh/entries/known"]) == ([], 6)


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
    judge(result)
