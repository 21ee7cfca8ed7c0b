"""``scrapy report``: one page about a run, or about more of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from walsh_scrapy.tools.command import FileCommand

if TYPE_CHECKING:
    import argparse


class Command(FileCommand):
    """Writes the report."""

    usage = "[options] -o FILE.html"
    headline = "Write an HTML page: what is new, what is wrong, which pauses were kept"
    description = (
        "Writes one HTML page without scripts, which loads nothing: new entries by source and "
        "day, sources in trouble and what to do, hosts that wait, the delay asked for and "
        "kept at each host, and responses. Without options it is about the last crawl. The file "
        "is written whole or not at all. Exit status: 0, 1 if it cannot be done, 2 for a wrong "
        "call. Examples: scrapy report -o report.html. scrapy report -O week.html --since P7D"
    )
    has_sources = True
    since = "all since then"

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Write, and say on standard error what the page is about."""
        from walsh_scrapy.tools.files import open_output

        target = self.target(opts)
        page, words = self._page(opts.sources or self.options.sources, opts.since)
        with open_output(target, replace=opts.output is None) as output:
            output.write(page)
        self.say_written(f"{words}: {len(page) / 1024:,.0f} KiB", target)
        return 0

    def _page(self, sources_file: str, since: float | None) -> tuple[bytes, str]:
        """Return the page, and what it is about."""
        from walsh_scrapy.tools.report.page import render
        from walsh_scrapy.tools.report.report import build_report, choose_period

        now = time.time()
        with self.state() as state:
            period = choose_period(state, now, since)
            report = build_report(state, self.options, sources_file, period, now)
        return render(report).encode(), period.words
