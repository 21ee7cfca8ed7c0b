"""``scrapy crawl feeds``: RSS, Atom and JSON feeds, their metadata only."""

from walsh_scrapy import spiders


class FeedsSpider(spiders.FeedsSpider):
    """The feeds that the sources file declares."""

    name = "feeds"
