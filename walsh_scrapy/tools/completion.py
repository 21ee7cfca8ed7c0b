"""Scripts by which a shell completes command lines, made by shtab from the parsers of the commands.

The scripts are static: a shell asks no program while somebody types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

SHELLS: Final = ("bash", "zsh", "fish")
DESCRIPTION: Final = (
    "Prints a script by which a shell (bash, zsh or fish) completes command lines. Exit status: 0 "
    "printed, 2 wrong call. Example: {0} completion bash > ~/.{0}-completion, and in ~/.bashrc: "
    "source ~/.{0}-completion"
)


def script(program: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell, which completes what a parser calls FILE or LOG as files.

    ``program`` has a parser for each command. Raises ModuleNotFoundError without the extra.
    """
    import shtab

    parsers = [program]
    for parser in parsers:  # which grows
        for action in parser._actions:  # noqa: SLF001 - shtab reads them too
            if action.metavar in ("FILE", "LOG"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif isinstance(action.choices, dict):  # the commands
                parsers += action.choices.values()
    return shtab.complete(program, shell)
