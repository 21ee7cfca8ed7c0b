"""``scrapy completion``: a script by which a shell completes command lines of ``scrapy``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.tools.command import OperatorCommand
from walsh_scrapy.tools.completion import DESCRIPTION, SHELLS

if TYPE_CHECKING:
    import argparse


class Command(OperatorCommand):
    """Knows the commands and the spiders of the folder that it runs in, Scrapy's own too."""

    requires_project = False
    headline = "Print a script that completes command lines in a shell"
    usage = "SHELL"
    description = DESCRIPTION.format("scrapy")
    takes_words = True

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Print the script."""
        from walsh_scrapy.tools.completion import script

        if len(args) != 1 or args[0] not in SHELLS:
            self.refuse(f"which shell? One of {', '.join(SHELLS)}")
        print(script(self._program(), args[0]))
        return 0

    def _program(self) -> argparse.ArgumentParser:
        """Return a parser of ``scrapy``, as Scrapy makes one for the command that is called."""
        from argparse import ArgumentParser

        from scrapy.cmdline import _get_commands_dict
        from scrapy.settings import Settings
        from scrapy.spiderloader import get_spider_loader
        from scrapy.utils.project import inside_project

        settings, inside = self.settings or Settings(), inside_project()
        program = ArgumentParser("scrapy")
        commands = program.add_subparsers(metavar="COMMAND")
        for name, command in sorted(_get_commands_dict(settings, inside).items()):
            command.settings = settings
            parser = commands.add_parser(
                name, help=command.short_desc(), conflict_handler="resolve"
            )
            command.add_options(parser)
            if name == "crawl":
                parser.add_argument("spider", choices=get_spider_loader(settings).list())
        return program
