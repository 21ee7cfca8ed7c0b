"""Test how polite any crawler is, by the log of servers on this machine."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``conformance``."""

    requires_project = False
    package = "walsh_scrapy.testing.conformance"
