"""``scrapy crawl``: Scrapy's own, which also tells by its exit status that a run went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands import crawl

if TYPE_CHECKING:
    import argparse


class Command(crawl.Command):
    """Exits with 1 if the crawl had to end because its state, or what a gate keeps, failed."""

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run a spider by name."""
        from walsh_scrapy.runtime.engine import has_ended_early

        super().run(args, opts)
        if has_ended_early():
            self.exitcode = 1
