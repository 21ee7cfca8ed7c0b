"""What tests of several packages share, and what only tests use."""

import inspect
import subprocess
import tomllib
from pathlib import Path

import pytest
import scrapy

ROOT = Path(__file__).parents[2]
#: Seconds after which something hangs, whatever else the machine does.
HANG_SECONDS = 300.0


def needs_scrapy_2_19(feature):
    """Skip a test before Scrapy 2.19, which added the feature."""
    reason = f"{feature} came with Scrapy 2.19"
    return pytest.mark.skipif(scrapy.version_info < (2, 19), reason=reason)


def execute(*command, **options):
    """Run a command to its end; return what `subprocess.run` does, its output as text."""
    given = {"capture_output": True, "text": True, "timeout": 2 * HANG_SECONDS} | options
    return subprocess.run(list(map(str, command)), check=False, **given)


def cases(*names, more=()):
    """Run a test with each row of its table, and with `more`, cases that no text file can hold.

    The table has the name of the test, in the TOML file next to it. A row that is shorter than the
    names has None at its end. If a test asks for nothing but the names, all rows are one test: it
    fails with the first row that fails, and names them all.
    """

    def with_cases(test):
        file = Path(test.__globals__["__file__"]).with_suffix(".toml")
        table = tomllib.loads(file.read_text("utf-8"))[test.__name__]
        rows = [*table, *more] if len(names) > 1 else [[row] for row in (*table, *more)]
        rows = [[*row, *[None] * (len(names) - len(row))] for row in rows]
        if set(inspect.signature(test).parameters) == set(names):
            return _all_rows(test, names, rows)
        return pytest.mark.parametrize(names, rows)(test)

    return with_cases


def _all_rows(test, names, rows):
    def test_rows():
        failures = []
        for row in rows:
            try:
                test(**dict(zip(names, row, strict=True)))
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - it is raised
                error.add_note(f"row: {row}")
                failures.append(error)
        if failures:
            others = "".join(f"\n{failure.__notes__[-1]}" for failure in failures[1:])
            failures[0].add_note(f"{len(failures)} of {len(rows)} rows fail{others}")
            raise failures[0]

    test_rows.__name__, test_rows.__doc__ = test.__name__, test.__doc__
    test_rows.__dict__.update(vars(test))  # its marks
    return test_rows
