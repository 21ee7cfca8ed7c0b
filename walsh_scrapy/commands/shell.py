"""``scrapy shell``: Scrapy's own, where a bot asks for more than its declared sources (R6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands import shell

if TYPE_CHECKING:
    import argparse


class Command(shell.Command):
    """Says what to call instead where only declared sources are asked for."""

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Exit with status 2 and one line before a crawl is made."""
        from walsh_scrapy.tools.urlcommand import check_scope

        super().process_options(args, opts)
        check_scope("shell", self.settings)
