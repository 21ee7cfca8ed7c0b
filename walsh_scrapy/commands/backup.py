"""Copy the state, as it is now, into one file while crawls run."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``backup``."""
