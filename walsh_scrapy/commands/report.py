"""Write an HTML page: new entries, problems, and the gaps between requests."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``report``."""
