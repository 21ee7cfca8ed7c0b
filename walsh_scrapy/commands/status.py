"""Say whether all is well: runs, blocklist, sources, holds, disk, clock."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``status``."""
