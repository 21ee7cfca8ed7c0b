"""``walsh why URL|HOST``: the requests to a host on one day, as a letter to its owner."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Read the state database, and print the letter."""
    from walsh_scrapy.tools.show import print_lines
    from walsh_scrapy.tools.why.account import read_account
    from walsh_scrapy.tools.why.letter import letter, to_records

    arguments = call.arguments
    with call.state() as state:
        account = read_account(state, call.options, arguments.subject, arguments.on)
    print_lines(map(json.dumps, to_records(account)) if arguments.json else letter(account))
    return 0
