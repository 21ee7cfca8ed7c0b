"""``scrapy report``: one page about what runs did, and what needs the operator.

Writes one HTML page without scripts, which loads nothing: new entries by source and day, sources in
trouble and what to do, hosts that wait, the delay asked for and kept at each host, and responses.
Without options it is about the last crawl. The file is written whole or not at all. Exit status: 0,
1 if it cannot be done, 2 for a wrong call. Examples: scrapy report -o report.html. scrapy report -O
week.html --since P7D
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import add_since, add_sources
from walsh_scrapy.tools.files import Output, add_output

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.call import Call

USAGE = "[options] -o FILE.html"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_output(parser)
    add_since(parser, "all since then")
    add_sources(parser)


def run(call: Call) -> int:
    """Write the page, and say on standard error what it is about."""
    from walsh_scrapy.tools.report.page import render
    from walsh_scrapy.tools.report.report import build_report, choose_period

    output, now = Output.of(call), time.time()
    with call.state() as state:
        period = choose_period(state, now, call.arguments.since)
        report = build_report(state, call.options, call.sources_file, period, now)
    page = render(report).encode()
    with output.open() as file:
        file.write(page)
    output.say(f"{period.words}: {len(page) / 1024:,.0f} KiB")
    return 0
