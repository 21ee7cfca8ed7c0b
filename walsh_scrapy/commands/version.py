"""``scrapy version``: Scrapy's own command, and the version of this project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands import version

from walsh_scrapy import __version__

if TYPE_CHECKING:
    import argparse


class Command(version.Command):
    """Prints one line more."""

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Print the versions."""
        super().run(args, opts)
        print(f"walsh-scrapy {__version__}")
