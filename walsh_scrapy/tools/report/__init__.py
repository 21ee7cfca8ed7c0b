"""``walsh report``: an HTML page about the last crawl, or about everything since a moment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import Output
from walsh_scrapy.tools.status import find_problems

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Write the page, and print what it is about on standard error."""
    from walsh_scrapy.tools.report.facts import choose_period, gather
    from walsh_scrapy.tools.report.page import render

    output = Output.from_call(call)
    now = time.time()
    with call.state() as state:
        period = choose_period(state, now, call.arguments.since)
        problems = find_problems(call.settings, call.options, state, call.sources_file)
        facts = gather(state, call.options, problems, period, now)
    page = render(facts).encode()
    with output.open() as file:
        file.write(page)
    output.report(f"{period.words}: {len(page) / 1024:,.0f} KiB")
    return 0
