"""``scrapy fetch``: Scrapy's own, where a bot asks for more than its declared sources (R6)."""

from scrapy.commands import fetch

from walsh_scrapy.tools.command import HandCommand


class Command(HandCommand, fetch.Command):
    """Says what to call instead where only declared sources are asked for."""
