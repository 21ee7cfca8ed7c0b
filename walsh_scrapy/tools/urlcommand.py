"""The base class of ``scrapy mayfetch`` and ``scrapy discover``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.tools.exits import clean_exit, usage_error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from scrapy import Spider
    from scrapy.crawler import CrawlerProcessBase
    from scrapy.settings import BaseSettings

    from walsh_scrapy.runtime.context import Context


def prepare(settings: BaseSettings, opts: argparse.Namespace, longest_wait: int) -> None:
    """Set for a crawl that answers a question: the longest wait in seconds, and warnings only."""
    settings.set("WALSH_MAX_WAIT", longest_wait, priority="command")
    if opts.loglevel is None:
        settings.set("LOG_LEVEL", "WARNING", priority="cmdline")


def check_scope(command: str, settings: BaseSettings | None) -> None:
    """Exit with status 2 and one line if only declared sources may be asked for (R6).

    ``command`` is one of Scrapy's own that ask for a URL by hand, for no source.
    """
    from walsh_scrapy.options import Options

    with clean_exit():
        options = Options.from_settings(settings or Settings())
    if options.enabled and options.scope == "declared":
        usage_error(
            f"`scrapy {command}` asks for what no source declares, and that is never asked for "
            "here (R6); `scrapy mayfetch URL` says whether a URL may be asked for, `scrapy "
            "discover URL` what is there, and `scrapy crawl feeds -a only=URL` reads a source"
        )


def run_spider(process: CrawlerProcessBase, spider: type[Spider], **arguments: object) -> None:
    """Run a spider in this process until it closes."""
    # What the add-on sets aside is said by crawls; here only the answer counts.
    logging.getLogger("walsh_scrapy.addon").setLevel(logging.ERROR)
    process.crawl(spider, **arguments)
    process.start()


class UrlCommand(ScrapyCommand):
    """A command that answers a question about URLs by a crawl: exit status 0 yes, 1 no, 2 unknown.

    It is not in the package of the commands, because Scrapy lists every class that it finds there.
    """

    requires_project = True

    longest_wait: ClassVar[int]  #: seconds; a request that has to wait longer is deferred
    example: ClassVar[str]

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return "[options] URL [URL ...]"

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Set the longest wait, and log warnings only, unless the options choose others."""
        super().process_options(args, opts)
        if self.settings is not None:
            prepare(self.settings, opts, self.longest_wait)

    def check_usage(self, args: list[str]) -> None:
        """Exit with status 2 and one line if there is no URL, or an unknown option."""
        if not args:
            usage_error(f"which URL? Example: {self.example}")
        for word in args:
            if word.startswith("-"):
                command = " ".join(self.example.split()[:2])
                usage_error(f"there is no option {word}; see {command} --help")

    def open_crawl(self) -> Context:
        """Return options and state; exit with status 2 and one line if the settings are bad."""
        from walsh_scrapy.options import BadSetting, Options
        from walsh_scrapy.runtime.context import Context
        from walsh_scrapy.runtime.startup import check_gates
        from walsh_scrapy.state import State, StateError

        settings = self.settings or Settings()
        try:
            check_gates(settings)
            options = Options.from_settings(settings)
            return Context(options, State(options.state_url))
        except (BadSetting, StateError) as error:
            usage_error(str(error))

    def run_spider(self, spider: type[Spider], **arguments: object) -> None:
        """Run a spider in this process until it closes."""
        if self.crawler_process is not None:
            run_spider(self.crawler_process, spider, **arguments)

    def set_exit_status(self, verdicts: Iterable[bool | None]) -> None:
        """Set 1 if any verdict is False, else 2 if any is None, else 0."""
        given = set(verdicts)
        self.exitcode = 1 if False in given else 2 if None in given else 0
