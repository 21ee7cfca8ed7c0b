"""``walsh init``: a new project, with a crawler for feeds.

Writes a Scrapy project: settings with the identity to fill in, a sources file with one feed, and
the spiders feeds and llms. Overwrites nothing. Exit status: 0 it is written, 1 a file is there
already, 2 it cannot be written. Example: walsh init my-feeds
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.tools.call import CommandError, WrongCall
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.call import Call

#: The files of a project; each has this ending here.
_TEMPLATES: Final = Path(__file__).parent / "templates" / "project"
_ENDING: Final = ".tmpl"
#: The mark in the settings for the name of the project.
_NAME: Final = "@NAME@"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder of the project")


def run(call: Call) -> int:
    """Write the project, and print the commands that come next."""
    folder = call.arguments.folder
    write_project(folder)
    settings = folder / "settings.py"
    told = f"""\
{folder} is a project now. Set WALSH_USER_AGENT and WALSH_UA_TOKEN in {settings}. Then:
  cd {shlex.quote(str(folder))} && scrapy crawl feeds
  scrapy export -o entries.csv"""
    print_lines(told.splitlines())
    return 0


def write_project(folder: Path) -> None:
    """Write a new project; raise CommandError, and write nothing, if a file is there already.

    Raises WrongCall if a file cannot be written.
    """
    name_written = json.dumps(folder.resolve().name)
    files = {
        str(file.relative_to(_TEMPLATES)).removesuffix(_ENDING): file.read_text("utf-8").replace(
            _NAME, name_written
        )
        for file in sorted(_TEMPLATES.rglob(f"*{_ENDING}"))
    }
    for name in files:
        if os.path.lexists(folder / name):
            there = f"{folder / name} exists already, so nothing was written; name another folder"
            raise CommandError(there)
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise WrongCall(f"{path} cannot be written: {why}") from error
