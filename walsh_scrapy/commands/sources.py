"""List the sources: last visit, outcome, next due and why; add one."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``sources``."""
