"""``walsh init``: a new project, whose identity is to be filled in."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.tools.exits import CommandError, usage_error
from walsh_scrapy.tools.newproject import write_project
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse

_EXAMPLE: Final = "Example: walsh init my-feeds"


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the program."""
    parser = commands.add_parser(
        "init",
        help="write a new project, with a crawler for feeds",
        description="Writes a Scrapy project: settings with the identity to fill in, a sources "
        "file with one feed, and the spiders feeds and llms. Overwrites nothing. Exit status: "
        f"0 it is written, 1 a file is there already, 2 it cannot be written. {_EXAMPLE}",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder of the project")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the project, and print the commands that come next. Raises CommandError."""
    folder = options.folder
    try:
        write_project(folder)
    except FileExistsError as error:
        told = f"{CommandError(str(error))} exists already, so nothing was written"
        usage_error(f"{told}; name another folder", status=1)
    settings = folder / "settings.py"
    told = f"""\
{folder} is a project now. Set WALSH_USER_AGENT and WALSH_UA_TOKEN in {settings}. Then:
  cd {shlex.quote(str(folder))} && scrapy crawl feeds
  scrapy export -o entries.csv"""
    print_lines(told.splitlines())
    return 0
