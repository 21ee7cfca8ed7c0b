"""What tests of several packages share, and what only tests use."""

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Seconds after which something hangs, whatever else the machine does.
LONGEST = 300.0


def execute(*command, **options):
    """Run a command to its end; return what `subprocess.run` does, its output as text."""
    given = {"capture_output": True, "text": True, "timeout": 2 * LONGEST} | options
    return subprocess.run(list(map(str, command)), check=False, **given)


def cases(*names, more=()):
    """Run a test with each row of its table, and with `more`, cases that no text file can hold.

    The table has the name of the test, in the TOML file next to it. A row that is shorter than the
    names has None at its end.
    """

    def with_cases(test):
        file = Path(test.__globals__["__file__"]).with_suffix(".toml")
        rows = tomllib.loads(file.read_text("utf-8"))[test.__name__]
        if len(names) == 1:
            return pytest.mark.parametrize(names[0], [*rows, *more])(test)
        filled = [[*row, *[None] * (len(names) - len(row))] for row in rows]
        return pytest.mark.parametrize(names, [*filled, *more])(test)

    return with_cases
