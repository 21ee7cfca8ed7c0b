"""Crawl a web on this machine twice and check the crawl by the log of its servers."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``demo``."""

    package = "walsh_scrapy.console"
