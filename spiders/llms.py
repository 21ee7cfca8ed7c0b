"""``scrapy crawl llms``: sites without a feed, by their markdown or llms.txt."""

from walsh_scrapy import spiders


class LlmsSpider(spiders.LlmsSpider):
    """The sites without a feed that the sources file declares."""

    name = "llms"
