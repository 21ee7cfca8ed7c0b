"""Audit the whole state by the contract's checklist, with evidence."""

from walsh_scrapy.tools.command import ToolCommand


class Command(ToolCommand):
    """Calls the tool ``attest``."""
