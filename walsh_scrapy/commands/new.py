"""List what is new: the entries of the last run that found something."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``new``."""
