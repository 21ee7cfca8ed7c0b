"""List the hosts that wait: until when and why; release or delay one."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``hosts``."""
