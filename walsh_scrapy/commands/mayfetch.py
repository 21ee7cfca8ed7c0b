"""Say whether URLs may be fetched: what each gate answers, and why."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``mayfetch``."""
