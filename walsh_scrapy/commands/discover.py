"""Find the sources of a site, as lines for sources.toml."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``discover``."""
