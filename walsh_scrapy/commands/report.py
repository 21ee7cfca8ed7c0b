"""``scrapy report``: one page about a run, or about more of them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.tools.exits import clean_exit, sources_hint, usage_error

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.options import Options


class Command(ScrapyCommand):
    """Writes the report. It may run beside a crawl, which does not wait for it."""

    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return "[options] -o FILE.html"

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "Write an HTML page: what is new, what is wrong, which pauses were kept"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Writes one HTML page without scripts, which loads nothing: new entries by source and "
            "day, sources in trouble and what to do, hosts that rest, the spacing asked for and "
            "kept at each host, responses, and outcomes by gate. Without options it is about the "
            "last crawl. The file is written whole or not at all. Exit status: 0, 1 if it cannot "
            "be done, 2 for a wrong call. Examples: scrapy report -o report.html. "
            "scrapy report -O week.html --since P7D. "
            "scrapy report -o blog.html --host blog.example"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        super().add_options(parser)
        parser.add_argument(
            "-o", "--output", metavar="FILE", help="a new file, or - for standard output"
        )
        parser.add_argument(
            "-O",
            "--overwrite-output",
            metavar="FILE",
            help="the same, but an existing file is replaced",
        )
        parser.add_argument("--run", metavar="N", help="only this run, by its number")
        parser.add_argument(
            "--since",
            metavar="WHEN",
            help="all since then: today, yesterday, 1d (a day ago), a date, an RFC 3339 time",
        )
        parser.add_argument(
            "--host",
            metavar="HOST",
            help="only this host; all that the log has of it, without --run and --since",
        )
        parser.add_argument(
            "--sources", metavar="FILE", help="sources file to use instead of WALSH_SOURCES"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Check the call, write, and say on standard error what the page is about."""
        from walsh_scrapy.options import Options
        from walsh_scrapy.tools.export.output import open_output
        from walsh_scrapy.tools.printable import printable

        if args:
            hint = sources_hint(args)
            usage_error(f"report does not take {args[0]}{hint}; see scrapy report --help")
        target, now = _target(opts), time.time()
        number, since = _number(opts.run), _since(opts.since, now)
        if number is not None and since is not None:
            usage_error("--run and --since exclude each other; drop one")
        with clean_exit():
            options = Options.from_settings(self.settings or Settings())
            host = _host(opts.host, options)
            page, words = _page(options, opts.sources or options.sources, now, number, since, host)
            with open_output(target, replace=opts.output is None) as file:
                file.write(page)
        where = "standard output" if target == "-" else printable(target)
        print(f"{words}: {len(page) / 1024:,.0f} KiB written to {where}", file=sys.stderr)


def _page(
    options: Options,
    sources_file: str,
    now: float,
    number: int | None,
    since: float | None,
    host: str | None,
) -> tuple[bytes, str]:
    """Return the page, and what it is about."""
    from walsh_scrapy.state import State
    from walsh_scrapy.state.engines import StateError, without_password
    from walsh_scrapy.tools.report.page import render
    from walsh_scrapy.tools.report.report import build_report, choose_period

    with State.existing(options.state_url) as state:
        if state is None:
            raise StateError(
                f"there is no state at {without_password(options.state_url)} yet: no crawl was "
                "run, or it had another WALSH_STATE_URL"
            )
        period = choose_period(state, now, options.log_seconds, run=number, since=since, host=host)
        report = build_report(state, options, sources_file, period, now)
    return render(report).encode(), period.words


def _target(opts: argparse.Namespace) -> str:
    given = [name for name in (opts.output, opts.overwrite_output) if name]
    if len(given) != 1:
        usage_error("give one file: -o FILE, or -O FILE to replace it; `-o -` is standard output")
    return str(given[0])


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        usage_error(f"--run takes the number of a run, and {text[:40]!r} is none")
    return int(text)


def _since(text: str | None, now: float) -> float | None:
    from walsh_scrapy.policy.timestamps import parse_since

    try:
        return None if text is None else parse_since(text, now)
    except ValueError as error:
        usage_error(f"--since: {error}")


def _host(given: str | None, options: Options) -> str | None:
    """Return the name under which the ledger paces a host, or the host of a URL."""
    from walsh_scrapy.tools.hosts.names import paced_name, url_of

    if given is None:
        return None
    host = paced_name(url_of(given), options.pace_by)
    if not host:
        usage_error(f"{given} is no host. Example: scrapy report -o blog.html --host blog.example")
    return host
