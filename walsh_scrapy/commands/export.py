"""Export the entries that any run found, or the sources as OPML."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``export``."""
