"""What tests of several rooms share, and what only tests use."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Seconds after which something hangs, whatever else the machine does.
LONGEST = 300.0


def execute(*command, **options):
    """Run a command to its end; return what `subprocess.run` does, its output as text."""
    given = {"capture_output": True, "text": True, "timeout": 2 * LONGEST} | options
    return subprocess.run(list(map(str, command)), check=False, **given)
