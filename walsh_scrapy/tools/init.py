"""``walsh init``: create a project that crawls feeds."""

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

#: The files of a new project, with an additional extension.
_TEMPLATES: Final = Path(__file__).parent / "templates" / "project"
_EXTENSION: Final = ".tmpl"
#: The placeholder for the name of the project.
_NAME: Final = "@NAME@"


def run(call: Call) -> int:
    """Create the project, and print the next steps."""
    folder = Path(call.arguments.folder)
    write_project(folder)
    settings = folder / "settings.py"
    lines = f"""\
Created {folder}. Before the first crawl:
- set WALSH_USER_AGENT in {settings}
- add the feeds that you want to {folder / "sources.toml"}
Then:
  cd {shlex.quote(str(folder))} && scrapy crawl feeds
  {program_name()} new"""
    print_lines(lines.splitlines())
    return 0


def write_project(folder: Path) -> None:
    """Create a project. Raises CommandError if a file cannot be written.

    Nothing is written if one of the files already exists.
    """
    quoted_name = json.dumps(folder.resolve().name)
    files = {
        str(file.relative_to(_TEMPLATES)).removesuffix(_EXTENSION): file.read_text("utf-8").replace(
            _NAME, quoted_name
        )
        for file in sorted(_TEMPLATES.rglob(f"*{_EXTENSION}"))
    }
    for name in files:
        if os.path.lexists(folder / name):
            raise CommandError(f"{folder / name} already exists; name another folder")
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CommandError(f"{path} cannot be written: {reason}") from error
