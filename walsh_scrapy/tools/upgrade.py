"""``walsh upgrade``: bring the state of an older version to the tables of this one."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from walsh_scrapy.state.tables import VERSION

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Upgrade the state database, with a line for each step."""
    with call.state(partial(print, file=sys.stderr, flush=True)) as state:
        print(f"{state.database} has schema {VERSION}")
    return 0
