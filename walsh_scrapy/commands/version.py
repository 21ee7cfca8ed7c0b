"""``scrapy version``: Scrapy's own command, and the version of this project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands import version

if TYPE_CHECKING:
    import argparse


class Command(version.Command):
    """Prints one line more."""

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Print the versions."""
        from walsh_scrapy.tools import own_version

        super().run(args, opts)
        print(f"walsh-scrapy {own_version()}")
