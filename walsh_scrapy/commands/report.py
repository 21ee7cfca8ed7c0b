"""``scrapy report``: one page about a run, or about more of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from walsh_scrapy.tools.command import FileCommand
from walsh_scrapy.tools.exits import usage_error

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.options import Options


class Command(FileCommand):
    """Writes the report."""

    usage = "[options] -o FILE.html"
    headline = "Write an HTML page: what is new, what is wrong, which pauses were kept"
    description = (
        "Writes one HTML page without scripts, which loads nothing: new entries by source and "
        "day, sources in trouble and what to do, hosts that rest, the spacing asked for and "
        "kept at each host, responses, and outcomes by gate. Without options it is about the "
        "last crawl. The file is written whole or not at all. Exit status: 0, 1 if it cannot "
        "be done, 2 for a wrong call. Examples: scrapy report -o report.html. "
        "scrapy report -O week.html --since P7D. "
        "scrapy report -o blog.html --host blog.example"
    )
    has_sources = True
    since = "all since then"
    arguments: ClassVar = {
        "--run": {"metavar": "N", "help": "only this run, by its number"},
        "--host": {
            "metavar": "HOST",
            "help": "only this host; all that the log has of it, without --run and --since",
        },
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Write, and say on standard error what the page is about."""
        from walsh_scrapy.tools.files import open_output

        target, number = self.target(opts), _number(opts.run)
        if number is not None and opts.since is not None:
            self.refuse("--run and --since exclude each other; drop one")
        host = _host(opts.host, self.options)
        file = opts.sources or self.options.sources
        page, words = self._page(file, number, opts.since, host)
        with open_output(target, replace=opts.output is None) as output:
            output.write(page)
        self.say_written(f"{words}: {len(page) / 1024:,.0f} KiB", target)
        return 0

    def _page(
        self, sources_file: str, number: int | None, since: float | None, host: str | None
    ) -> tuple[bytes, str]:
        """Return the page, and what it is about."""
        from walsh_scrapy.tools.report.page import render
        from walsh_scrapy.tools.report.report import build_report, choose_period

        options, now = self.options, time.time()
        with self.state() as state:
            kept = options.log_seconds
            period = choose_period(state, now, kept, run=number, since=since, host=host)
            report = build_report(state, options, sources_file, period, now)
        return render(report).encode(), period.words


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        usage_error(f"--run takes the number of a run, and {text[:40]!r} is none")
    return int(text)


def _host(given: str | None, options: Options) -> str | None:
    """Return the name under which the ledger paces a host, or the host of a URL."""
    from walsh_scrapy.tools.hosts import url_of

    if given is None:
        return None
    host = options.pace_by.unit(url_of(given))
    if not host:
        usage_error(f"{given} is no host. Example: scrapy report -o blog.html --host blog.example")
    return host
