"""``scrapy parse``: Scrapy's own, where a bot asks for more than its declared sources (R6)."""

from scrapy.commands import parse

from walsh_scrapy.tools.command import HandCommand


class Command(HandCommand, parse.Command):
    """Says what to call instead where only declared sources are asked for."""
