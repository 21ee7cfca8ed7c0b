"""``scrapy crawl``: Scrapy's command, with exit status 1 if the crawl came to nothing."""

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
    """Exits with 1 if sources failed and none was read, and for the reasons of Scrapy's command.

    The log has only those of Scrapy's lines that an operator needs.
    """

    _created: Crawler | None = None

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Read the options; Scrapy sets up its log afterwards."""
        from walsh_scrapy.crawl.log import quiet_scrapy

        for word in args:
            if word.startswith("-"):
                is_file = word.partition("=")[0] == "--sources"
                hint = " (the sources file is -a sources=FILE here)" if is_file else ""
                _refuse(f"there is no option {word}{hint}; see scrapy crawl --help", 2)
        quiet_scrapy()
        super().process_options(args, opts)
        if self.settings and (name := self.settings["LOG_FILE"]):
            _check_log(Path(name))
        for name in self.settings.getlist("SPIDER_MODULES") if self.settings else ():
            if find_spec(name.partition(".")[0]) is None:  # Scrapy shows a traceback
                begin = f"{program_name()} init FOLDER"
                _refuse(f"there is no module {name} here; {begin} writes a project", 2)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run a spider by name."""
        from walsh_scrapy.crawl.refusal import exit_status
        from walsh_scrapy.extensions.summary import SourceCounts

        names = self.crawler_process.spider_loader.list() if self.crawler_process else []
        if len(args) == 1 and args[0] not in names:
            near = get_close_matches(args[0], names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"available: {', '.join(sorted(names))}"
            _refuse(f"no spider named {args[0]!r}; {hint}", 2)
        super().run(args, opts)
        if self.exitcode or self._created is None:  # it has not begun, or ended early
            self.exitcode = exit_status()
            return
        if SourceCounts.of(self._created.stats.get_stats()).none_was_read:
            self.exitcode = 1

    def _create_crawler(self, spidercls: type[Spider] | str) -> Crawler:
        """Remember the crawl of this command, which Scrapy forgets at its end."""
        self._created = super()._create_crawler(spidercls)
        if sys.platform != "win32":  # it has no SIGHUP, and holds no signal back
            from walsh_scrapy.crawl.scrapyinternals import listen_for_signals

            listen_for_signals(self._created)
        return self._created


def _refuse(message: str, status: int) -> NoReturn:
    """Exit with one line on standard error."""
    print(f"walsh-scrapy: {message}", file=sys.stderr)
    raise SystemExit(status)


def _check_log(file: Path) -> None:
    """Exit with one line if the log cannot be opened, for which Scrapy shows a traceback."""
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):
            return  # to open and close a pipe would end its reader
        file.open("ab").close()
    except OSError as error:
        _refuse(
            f"the log {file} cannot be written: {error.strerror}; make its folder, "
            "give this user the right to write there, or name another LOG_FILE",
            1,
        )
