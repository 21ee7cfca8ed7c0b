"""``scrapy crawl``, with exit status 1 if the crawl failed, as `policy.problems` says."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from scrapy.commands import crawl

from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    import argparse

    from scrapy import Spider
    from scrapy.crawler import Crawler


class Command(crawl.Command):
    """Scrapy's command, which also exits with 1 if something went wrong in the run.

    The log leaves out the lines of Scrapy that an operator does not need.
    """

    _created: Crawler | None = None

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Check the options and the log file before Scrapy sets up its log."""
        from walsh_scrapy.crawl.processlog import quiet_scrapy

        for word in args:
            if word.startswith("-"):
                is_file = word.partition("=")[0] == "--sources"
                hint = " (write -a sources=FILE)" if is_file else ""
                _exit(f"unknown option {word}{hint}; see scrapy crawl --help", 2)
        quiet_scrapy()
        super().process_options(args, opts)
        if self.settings and (name := self.settings["LOG_FILE"]):
            _check_log(Path(name))
        for name in self.settings.getlist("SPIDER_MODULES") if self.settings else ():
            if find_spec(name.partition(".")[0]) is None:  # Scrapy would show a traceback
                _exit(
                    f"there is no module {name} here; {program_name()} init FOLDER creates a "
                    "project",
                    2,
                )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run a spider by name."""
        from walsh_scrapy.crawl.refusal import exit_status

        names = self.crawler_process.spider_loader.list() if self.crawler_process else []
        if len(args) == 1 and args[0] not in names:
            near = get_close_matches(args[0], names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"available: {', '.join(sorted(names))}"
            _exit(f"no spider named {args[0]!r}; {hint}", 2)
        super().run(args, opts)
        if self.exitcode or self._created is None:  # the crawl did not start, or ended early
            self.exitcode = exit_status()
            return
        if self._created.stats.get_value("walsh/problem"):
            self.exitcode = 1

    def _create_crawler(self, spidercls: type[Spider] | str) -> Crawler:
        """Keep the crawler, because Scrapy forgets it before `run` reads its stats."""
        self._created = super()._create_crawler(spidercls)
        if sys.platform != "win32":  # Windows has no SIGHUP, and cannot block signals
            from walsh_scrapy.crawl.scrapyinternals import listen_for_signals

            listen_for_signals(self._created)
        return self._created


def _exit(message: str, status: int) -> NoReturn:
    """Exit with one line on standard error."""
    print(f"walsh-scrapy: {message}", file=sys.stderr)
    raise SystemExit(status)


def _check_log(file: Path) -> None:
    """Exit with one line if the log cannot be opened, because Scrapy would show a traceback."""
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):
            return  # opening and closing a pipe would make its reader stop
        file.open("ab").close()
    except OSError as error:
        _exit(
            f"the log {file} cannot be written: {error.strerror}; create the folder, "
            "make the file writable, or set another LOG_FILE",
            1,
        )
