"""The program ``walsh``, which runs every command except ``scrapy crawl``.

It finds the settings of a Scrapy project as Scrapy does: in the `scrapy.cfg` of this folder or of a
parent folder, or by `SCRAPY_SETTINGS_MODULE` and `SCRAPY_PROJECT`.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from walsh_scrapy import __version__
from walsh_scrapy.console.commands import COMMANDS, GROUPS, add_settings
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools import open_closed_streams
from walsh_scrapy.tools.call import Call, WrongCall, clean_exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.console.commands import Command

_DESCRIPTION: Final = """\
Tools for polite crawls. `scrapy crawl SPIDER` runs the crawls themselves.
`walsh init FOLDER` makes a project for feeds."""
_USAGE: Final = "%(prog)s [-h] [--version] COMMAND ..."
#: The names of the actions of `sources`.
_SOURCES_ACTIONS: Final = frozenset(
    name.partition(" ")[2] for name in COMMANDS if name.startswith("sources ")
)
_WRONG_CHOICE: Final = re.compile(
    r"argument (COMMAND|ACTION): invalid choice: (.+?) \(choose from (.+)\)"
)
_HINT: Final = "`walsh COMMAND --help` describes a command and its options."
_WRONG_CALL: Final = "  2  the arguments are wrong"
_UNUSABLE: Final = "  3  there is no project, or its settings or state database cannot be used"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command, and exit with its status."""
    open_closed_streams()
    with clean_exit():
        words = sys.argv[1:] if arguments is None else arguments
        parser = build_parser(words[0] if words else "")
        options = parse(parser, words)
        if options.command is None:
            parser.print_help(sys.stderr)
            raise SystemExit(2)
        command = COMMANDS[options.command]
        call = Call(options)
        if command.needs_project:
            call.check_project()
        module, _, function = command.function.partition(":")
        status = getattr(import_module(f"walsh_scrapy.{module}"), function)(call)
    raise SystemExit(status)


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; URLs may come before and after options. Raises WrongCall."""
    options, rest = parser.parse_known_args(_name_action(words))
    for word in rest:
        is_option = word.startswith("-")
        if is_option or not hasattr(options, "urls"):
            problem = f"unknown option {word}" if is_option else f"unexpected argument {word}"
            raise WrongCall(f"{problem}; see {parser.prog} {options.command or ''} --help")
        options.urls.append(word)
    return options


def _name_action(words: Sequence[str]) -> Sequence[str]:
    """Return the words with `sources show URL` instead of `sources URL`."""
    if words[:1] != ["sources"] or not _SOURCES_ACTIONS.isdisjoint(words):
        return words
    for place, word in enumerate(words):
        if word.lower().startswith(("http://", "https://")):
            return [*words[:place], "show", *words[place:]]
    return words


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which does not wrap the lines of the help."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - passed on to argparse
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> NoReturn:
        """Raise WrongCall."""
        if choice := _WRONG_CHOICE.fullmatch(message):
            kind, word, choices = choice.groups()
            message = f"unknown {kind.lower()} {word}"
            if kind == "ACTION":
                takes_url = self.prog.endswith(" sources")
                url = "a URL begins with http:// or https://, and " if takes_url else ""
                choices = choices.replace("'", "")
                message = f"{message}: {url}the actions are {choices}"
        raise WrongCall(f"{printable(message)}; see {self.prog} --help")


def build_parser(name: str = "") -> argparse.ArgumentParser:
    """Return the parser for one command and its actions, or for all commands.

    Only the parsers that the call needs are built, because building all of them takes a tenth of
    the time of `walsh lint`.
    """
    parser = Parser(
        prog=program_name(),
        usage=_USAGE,
        description=_name_program(_DESCRIPTION),
        epilog=_list_of_commands(),
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"walsh-scrapy {__version__}",
        help="print the version and exit",
    )
    parsers: dict[str, argparse.ArgumentParser] = {"": parser}
    actions: dict[str, Any] = {}
    for command in COMMANDS.values():
        if name in COMMANDS and command.name.split()[0] != name:
            continue
        parent, _, word = command.name.rpartition(" ")
        if parent not in actions:
            actions[parent] = parsers[parent].add_subparsers(
                prog=parsers[parent].prog,
                dest="action" if parent else "command",
                metavar="ACTION" if parent else "COMMAND",
                required=parent == "keys",  # the others list something without an action
                help="what to do; `ACTION --help` describes an action"
                if parent
                else argparse.SUPPRESS,
            )
        listed = {"help": command.headline} if parent else {}
        child = actions[parent].add_parser(word, **listed, **_help_of(command))
        parsers[command.name] = child
        command.add_arguments(child)
        if command.has_settings:
            add_settings(child, is_action=bool(parent))
    return parser


def _list_of_commands() -> str:
    """Return the commands by group, each with its headline, for the help."""
    lines: list[str] = []
    for group in GROUPS:
        lines += ["", f"{group}:"]
        lines += [
            f"  {command.name:<12} {command.headline}"
            for command in COMMANDS.values()
            if command.group == group and " " not in command.name
        ]
    return _name_program("\n".join([*lines[1:], "", _HINT]))


def _help_of(command: Command) -> dict[str, str]:
    """Return the description, and the epilog: the examples and the exit statuses."""
    text, _, rest = command.help_text.partition("\n\nexamples:\n")
    paragraphs = [_wrap(_name_program(paragraph)) for paragraph in text.split("\n\n")]
    epilog = f"examples:\n{_name_program(rest.rstrip())}\n{_WRONG_CALL}"
    if command.has_settings:
        epilog = f"{epilog}\n{_UNUSABLE}"
    return {"description": "\n\n".join(paragraphs), "epilog": epilog}


def _wrap(paragraph: str) -> str:
    """Return a paragraph with lines for a terminal; an indented list keeps its lines."""
    if paragraph.startswith(" "):
        return paragraph
    return textwrap.fill(paragraph, 79, break_long_words=False, break_on_hyphens=False)


def _name_program(text: str) -> str:
    """Replace `walsh` by the name under which the program was called."""
    return text.replace("walsh ", f"{program_name()} ")
