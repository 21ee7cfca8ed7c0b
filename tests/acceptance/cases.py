"""Random days that once failed. They are played in each gate."""

from typing import Final

from tests.acceptance.randomdays import Days

CASES: Final[dict[str, Days]] = {}
