"""The class of our commands of Scrapy: each calls the tool of its name (``walsh_scrapy.tools``).

It is not in the package of the commands, because Scrapy lists every class that it finds there.
"""

from __future__ import annotations

import argparse
import sys
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, NoReturn

from scrapy.commands import ScrapyCommand

from walsh_scrapy.tools.call import Call, fail, run_tool

if TYPE_CHECKING:
    from types import ModuleType


class ToolCommand(ScrapyCommand):
    """A command that may run during a crawl. The docstring of its module is its headline.

    Neither that module nor this one imports the tool before the command is called.
    """

    requires_project = True
    requires_crawler_process = False

    package: ClassVar[str] = "walsh_scrapy.tools"  #: that has the tool

    @cached_property
    def name(self) -> str:
        """The name of the command, which is that of its module."""
        return type(self).__module__.rpartition(".")[2]

    @cached_property
    def tool(self) -> ModuleType:
        """The module that does the work."""
        return import_module(f"{self.package}.{self.name}")

    def syntax(self) -> str:
        """Return the arguments after the command's name."""
        return getattr(self.tool, "USAGE", "[options]")

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return (sys.modules[type(self).__module__].__doc__ or "").strip().rstrip(".")

    def long_desc(self) -> str:
        """Return the text of ``--help``: the tool's docstring without its first line."""
        return " ".join((self.tool.__doc__ or "").partition("\n\n")[2].split())

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add Scrapy's options and those of the tool; the former may follow an action too."""
        super().add_options(parser)
        parser.prog = f"scrapy {self.name}"
        parser.error = self.refuse  # type: ignore[method-assign]
        self.tool.options(parser)
        for actions in parser._actions:  # noqa: SLF001 - argparse has no other way to them
            if isinstance(actions, argparse._SubParsersAction):  # noqa: SLF001
                for each in dict.fromkeys(actions.choices.values()):
                    self._add_own(each)

    def _add_own(self, parser: argparse.ArgumentParser) -> None:
        """Add Scrapy's options to the parser of an action; other options stay."""
        before = len(parser._actions)  # noqa: SLF001
        super().add_options(parser)
        for option in parser._actions[before:]:  # noqa: SLF001
            option.default, option.help = argparse.SUPPRESS, argparse.SUPPRESS
            if option.dest == "set":
                option.dest = "set_there"

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Check unknown arguments, and set the options."""
        opts.set += getattr(opts, "set_there", [])
        super().process_options(args, opts)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run the tool; an error that the operator can mend is one line."""
        for word in args:
            if word.startswith("-") or not hasattr(opts, "urls"):
                is_option = word.startswith("-")
                self.refuse(
                    f"there is no option {word}"
                    if is_option
                    else f"{self.name} does not take {word}"
                )
            opts.urls.append(word)  # an option was between two of them
        self.exitcode = run_tool(self.tool, Call(opts, self.settings))

    def refuse(self, message: str) -> NoReturn:
        """Exit with one line: the command was called in a wrong way."""
        fail(f"{message}; see scrapy {self.name} --help", getattr(self.tool, "WRONG_CALL", 2))
