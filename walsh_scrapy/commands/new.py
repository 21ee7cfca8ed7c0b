"""List the new entries: those of the last run that found something."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``new``."""
