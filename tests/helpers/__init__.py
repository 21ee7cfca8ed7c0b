"""What tests of several rooms share, and what only tests use."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Seconds after which something hangs, whatever else the machine does.
LONGEST = 300.0
