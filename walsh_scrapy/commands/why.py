"""Explain the requests to a host on one day, in words that can be mailed."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``why``."""
