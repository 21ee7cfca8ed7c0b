"""Write an HTML page: what is new, what is wrong, which pauses were kept."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``report``."""
