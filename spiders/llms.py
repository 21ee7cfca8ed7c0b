"""``scrapy crawl llms``: sites without a feed, by their markdown or their llms.txt."""

from walsh_scrapy.feeds import spiders


class LlmsSpider(spiders.LlmsSpider):
    """Crawls the sites without a feed in the sources file."""

    name = "llms"
