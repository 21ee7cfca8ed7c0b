"""``walsh why URL|HOST``: the requests to a host on some days, as a letter to its owner."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Read the state database, and print the letter."""
    from walsh_scrapy.tools.call import WrongCall
    from walsh_scrapy.tools.show import print_lines
    from walsh_scrapy.tools.why.account import Days, read_account
    from walsh_scrapy.tools.why.letter import letter, to_records

    arguments = call.arguments
    since, until = arguments.since, arguments.until
    if arguments.on and (since or until):
        raise WrongCall("--on is one day, and --since and --until are a period; drop one of them")
    if since and until and since > until:
        raise WrongCall(f"--since {since} is after --until {until}")
    since = arguments.on or since
    until = arguments.on or until
    days = Days(since, until) if since or until else None
    with call.state() as state:
        account = read_account(state, call.options, arguments.subject, days)
    print_lines(map(json.dumps, to_records(account)) if arguments.json else letter(account))
    return 0
