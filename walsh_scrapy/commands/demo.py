"""Crawl a web on this machine twice and judge the crawl by what its servers saw."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``demo``."""

    package = "walsh_scrapy.console"
