"""``scrapy conformance -- COMMAND...``: a politeness test for any crawler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand

if TYPE_CHECKING:
    import argparse


class Command(ScrapyCommand):
    """Judges a command, whatever it is written in, by what servers of this machine saw of it."""

    requires_project = False
    requires_crawler_process = False

    def syntax(self) -> str:
        """Return what follows the command's name."""
        from walsh_scrapy.testing.conformance.commandline import SYNTAX

        return SYNTAX

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "Test how polite any crawler is, by what servers on this machine see of it"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        from walsh_scrapy.testing.conformance.commandline import DESCRIPTION

        return f"{DESCRIPTION} Example: scrapy conformance --rules R1 -- wget -i {{seeds}}"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        from walsh_scrapy.testing.conformance.commandline import add_options

        super().add_options(parser)
        add_options(parser)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Try the command and print its scorecard."""
        from walsh_scrapy.testing.conformance.commandline import try_command

        self.exitcode = try_command(args, opts)
