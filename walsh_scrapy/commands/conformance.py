"""``scrapy conformance -- COMMAND...``: a politeness test for any crawler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.tools.command import OperatorCommand

if TYPE_CHECKING:
    import argparse


class Command(OperatorCommand):
    """Judges a command, whatever it is written in, by what servers of this machine saw of it."""

    requires_project = False
    headline = "Test how polite any crawler is, by what servers on this machine see of it"
    takes_any_words = True  # those of the command to try, with its options

    def syntax(self) -> str:
        """Return what follows the command's name."""
        from walsh_scrapy.testing.conformance.commandline import SYNTAX

        return SYNTAX

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        from walsh_scrapy.testing.conformance.commandline import DESCRIPTION

        return f"{DESCRIPTION} Example: scrapy conformance --rules R1 -- wget -i {{seeds}}"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that the command has without a project too."""
        from walsh_scrapy.testing.conformance.commandline import add_options

        super().add_options(parser)
        add_options(parser)

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:
        """Try the command and print its scorecard."""
        from walsh_scrapy.testing.conformance.commandline import try_command

        return try_command(args, opts)
