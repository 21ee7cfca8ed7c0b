"""``scrapy crawl``: Scrapy's own command, with exit status 1 if the crawl ended early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands import crawl

if TYPE_CHECKING:
    import argparse


class Command(crawl.Command):
    """Exits with 1 if the crawl ended early because its state or a gate failed."""

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run a spider by name."""
        from walsh_scrapy.runtime.engine import has_ended_early

        super().run(args, opts)
        if has_ended_early():
            self.exitcode = 1
