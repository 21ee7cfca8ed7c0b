"""Their own spider, which follows links."""

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class PagesSpider(CrawlSpider):
    name = "pages"
    allowed_domains = ["example"]
    start_urls = ["http://a.example/"]
    rules = [Rule(LinkExtractor(), callback="page", errback="trouble", follow=True)]

    def page(self, response):
        yield {"url": response.url, "title": response.xpath("//title/text()").get()}

    def trouble(self, failure):
        yield {"url": failure.request.url, "trouble": type(failure.value).__name__}
