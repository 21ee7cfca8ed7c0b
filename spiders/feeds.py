"""``scrapy crawl feeds``: the metadata of RSS, Atom and JSON feeds."""

from walsh_scrapy.feeds import spiders


class FeedsSpider(spiders.FeedsSpider):
    """Crawls the feeds in the sources file."""

    name = "feeds"
