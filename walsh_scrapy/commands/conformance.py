"""Test how polite any crawler is, by what servers on this machine see of it."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``conformance``."""

    requires_project = False
    package = "walsh_scrapy.testing.conformance"
