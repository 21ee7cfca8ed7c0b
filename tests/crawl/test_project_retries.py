"""What a project's settings, spider and requests say about the retries of a refused request."""

from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from tests.helpers import cases
from walsh_scrapy.downloadermiddlewares.backoff import ProjectRetries


@cases("given", "meta", "chosen")
def test_scrapys_names_choose_the_retries(given, meta, chosen):
    settings = {name: value for name, value in given.items() if name.isupper()}
    crawler = get_crawler(settings_dict=settings)
    crawler.spider = Spider("any")
    for name in given.keys() - settings.keys():
        setattr(crawler.spider, name, given[name])
    request = Request("http://a.example/", meta=meta)
    result = ProjectRetries(crawler).chosen(request, 429)
    assert (result and list(result)) == chosen
