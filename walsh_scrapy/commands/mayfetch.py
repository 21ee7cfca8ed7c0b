"""Show whether URLs may be fetched: the answer of each gate, and why."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``mayfetch``."""
