"""Keys that sign requests: make one, publish them."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``keys``."""
