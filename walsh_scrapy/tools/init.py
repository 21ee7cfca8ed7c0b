"""``walsh init``: a new project, with a crawler for feeds."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.show import print_lines

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call

#: The files of a project; each has this ending here.
_TEMPLATES: Final = Path(__file__).parent / "templates" / "project"
_ENDING: Final = ".tmpl"
#: The mark in the settings for the name of the project.
_NAME: Final = "@NAME@"


def run(call: Call) -> int:
    """Write the project, and print the commands that come next."""
    folder = Path(call.arguments.folder)
    write_project(folder)
    settings = folder / "settings.py"
    lines = f"""\
Created {folder}. Set WALSH_USER_AGENT and WALSH_UA_TOKEN in {settings},
and declare your sources in {folder / "sources.toml"}. Then:
  cd {shlex.quote(str(folder))} && scrapy crawl feeds
  {program_name()} new"""
    print_lines(lines.splitlines())
    return 0


def write_project(folder: Path) -> None:
    """Write a new project; raise CommandError if a file cannot be written.

    Nothing is written if one of the files exists already.
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
            raise CommandError(f"{path} cannot be written: {why}") from error
