"""What a project's settings, spider and requests say about the retries of a refused request."""

import asyncio

import pytest
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from tests.helpers import cases
from tests.helpers.sites import AGENT, IDENTITY
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.downloadermiddlewares.backoff import BackoffMiddleware, ProjectRetries
from walsh_scrapy.downloadermiddlewares.pacing import PacingMiddleware
from walsh_scrapy.wire.endpoints import NoAnswer


@cases("given", "meta", "chosen")
def test_scrapys_names_choose_the_retries(given, meta, chosen):
    settings = {name: value for name, value in given.items() if name.isupper()}
    crawler = get_crawler(settings_dict=settings)
    crawler.spider = Spider("any")
    for name in given.keys() - settings.keys():
        setattr(crawler.spider, name, given[name])
    request = Request("http://a.example/", meta=meta)
    result = ProjectRetries(crawler).find(request, 429)
    assert (result and list(result)) == chosen


@pytest.mark.parametrize(
    ("before", "after"), [({}, {}), ({"dont_retry": True}, {"dont_retry": True})], ids=str
)
def test_an_unreachable_host_leaves_no_choice_in_the_request(tmp_path, before, after):
    state = {"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3", "USER_AGENT": AGENT}
    crawl = Crawl.of(get_crawler(settings_dict=IDENTITY | state))
    request, error = Request("http://a.example/", meta=dict(before)), NoAnswer("a.example", "mute")

    async def end():
        for middleware in (PacingMiddleware(crawl), BackoffMiddleware(crawl)):
            await middleware.process_exception(request, error)

    asyncio.run(end())
    assert {name: request.meta[name] for name in after} == after
    assert ("dont_retry" in request.meta) is bool(after)
