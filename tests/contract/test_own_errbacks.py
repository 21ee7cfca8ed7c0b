"""A spider's own errback is called, whatever it is, and the visit still ends once in the record."""

import pytest

from tests.helpers.sites import feed, rows_of
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site, redirect

SPIDER = '''
from scrapy.downloadermiddlewares.retry import get_retry_request
from spiders.feeds import FeedsSpider
from walsh_scrapy.items import EntryItem


class OwnSpider(FeedsSpider):
    """Gives each source the errback that is its name."""

    name = "own"
    custom_settings = {"SPIDER_MODULES": ["spiders"]}

    def first_request(self, source, url):
        request = super().first_request(source, url)
        request.errback = getattr(self, source.name)
        return request

    def parse(self, response, source):
        if response.text == "later":
            yield get_retry_request(response.request, spider=self, reason="later")
        else:
            yield from super().parse(response, source)

    def once_more(self, failure):
        source = failure.request.cb_kwargs["source"]
        return self.request(source, source.url, self.accept, self.readable)

    def called(self, failure):
        self.crawler.stats.inc_value(f"called/{failure.request.url}")

    def nothing(self, failure):
        self.called(failure)

    def raises(self, failure):
        self.called(failure)
        raise ZeroDivisionError("the errback failed")

    def hands_it_back(self, failure):
        self.called(failure)
        return failure

    def traps(self, failure):
        self.called(failure)
        failure.trap(ZeroDivisionError)

    async def hands_it_back_later(self, failure):
        self.called(failure)
        return failure

    def a_request(self, failure):
        self.called(failure)
        return self.once_more(failure)

    def a_list(self, failure):
        self.called(failure)
        return [self.once_more(failure)]

    def a_generator(self, failure):
        self.called(failure)
        yield self.once_more(failure)

    async def a_coroutine(self, failure):
        self.called(failure)
        return [self.once_more(failure)]

    async def an_async_generator(self, failure):
        self.called(failure)
        yield self.once_more(failure)

    def a_copy(self, failure):
        self.called(failure)
        if "copied" not in failure.request.meta:
            copy = failure.request.replace(dont_filter=True)
            copy.meta["copied"] = True
            yield copy

    def the_same(self, failure):
        self.called(failure)
        if "sent_again" not in failure.request.meta:
            failure.request.meta["sent_again"] = True
            yield failure.request

    def an_item(self, failure):
        self.called(failure)
        yield {"body": failure.request.url}
        yield EntryItem(kind="feed", source=failure.request.url, url="http://a.example/")
'''
GONE_WRONG = {
    "http": Reply(status=404),  # passes the spider middlewares, as HttpError
    "circle": redirect("/feed"),  # does not: it ends in a downloader middleware
}
ENDS = ["nothing", "raises", "hands_it_back", "traps", "hands_it_back_later"]
GOES_ON = ["a_request", "a_list", "a_generator", "a_coroutine", "an_async_generator"]
AGAIN = ["a_copy", "the_same"]


@pytest.fixture
def run(loopback_web, crawl, project_with):
    """Run the spider on hosts given as (errback, answers); return the result and the record."""

    def run_spider(hosts):
        web = loopback_web(*(Site(host, "", {"/feed": page}) for host, (_, page) in hosts.items()))
        sources = [
            {"url": f"http://{host}/feed", "name": errback} for host, (errback, _) in hosts.items()
        ]
        result = crawl(web, "own", sources=sources, project=project_with(SPIDER))
        assert_polite(result.log)
        rows = rows_of(crawl, "SELECT url, outcome, failures FROM sources")
        record = {url.split("/")[2]: (outcome, failures) for url, outcome, failures in rows}
        called = {
            name.split("/")[3]: count
            for name, count in result.stats.items()
            if name.startswith("called/")
        }
        return result, record, called

    return run_spider


def host_of(errback, wrong, then=""):
    return f"{errback}-{wrong}{then}.example".replace("_", "-")


def test_a_visit_ends_once_whatever_the_errback_returns(run):
    hosts = {
        host_of(errback, wrong): (errback, answer)
        for errback in ENDS
        for wrong, answer in GONE_WRONG.items()
    }
    result, record, called = run(hosts)
    assert called == dict.fromkeys(hosts, 1)
    assert record == dict.fromkeys(hosts, ("failed", 1))
    assert result.stats["walsh/sources/failed"] == len(hosts)
    # Only what an errback raises itself is its error; a failure that it hands back is no new one.
    assert result.stats["spider_exceptions/count"] == 2
    assert result.stats["spider_exceptions/ZeroDivisionError"] == 2


def test_a_visit_goes_on_with_the_request_of_its_errback(run):
    hosts = {}
    for errback in [*GOES_ON, *AGAIN]:
        for wrong, answer in GONE_WRONG.items():
            well = host_of(errback, wrong, "-well")
            hosts[well] = (errback, [answer, feed(host=well)])
            hosts[host_of(errback, wrong, "-ill")] = (errback, [answer, Reply(status=404)])
    result, record, called = run(hosts)
    ill = {host for host in hosts if host.endswith("-ill.example")}
    assert record == {host: ("failed", 1) if host in ill else ("fetched", 0) for host in hosts}
    assert result.stats["walsh/sources/failed"] == len(ill)
    assert result.stats["walsh/sources/fetched"] == len(hosts) - len(ill)
    assert len(result.items) == 2 * (len(hosts) - len(ill))
    keeps_errback = {host for host in ill if host.startswith(("a-copy", "the-same"))}
    assert called == {host: 2 if host in keeps_errback else 1 for host in hosts}
    assert "spider_exceptions/count" not in result.stats


def test_what_is_no_metadata_leaves_from_no_errback(run):
    hosts = {host_of("an_item", wrong): ("an_item", page) for wrong, page in GONE_WRONG.items()}
    result, record, called = run(hosts)
    assert result.items == []
    assert called == dict.fromkeys(hosts, 1)
    assert record == dict.fromkeys(hosts, ("failed", 1))
    assert result.stderr.count("an item is left out") == 4


def test_a_request_made_again_by_its_callback_ends_once(run):
    hosts = {"again.example": ("nothing", [Reply("later"), Reply(status=404)])}
    result, record, called = run(hosts)
    assert called == {"again.example": 1}
    assert record == {"again.example": ("failed", 1)}
    assert result.stats["walsh/sources/failed"] == 1
