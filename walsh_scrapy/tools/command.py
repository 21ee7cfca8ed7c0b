"""The base classes of the commands: their options, the state, exit statuses and errors.

They are not in the package of the commands, because Scrapy lists every class that it finds there.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.policy.wording import printable
from walsh_scrapy.tools.exits import CommandError, clean_exit, usage_error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from scrapy import Spider

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State

#: Settings of a run that is no crawl: it leaves the project's exports, pipelines and job alone.
NO_OUTPUT: Final[dict[str, Any]] = {
    "FEEDS": {},
    "ITEM_PIPELINES": {},
    "JOBDIR": None,
    "HTTPCACHE_ENABLED": False,  # the answer is about what a site says now
}
WHEN: Final = "today, yesterday, 1d (a day ago), a date, an RFC 3339 time"


class OperatorCommand(ScrapyCommand):
    """A command for operators: exit status 0, 1 if it cannot be done, 2 for a wrong call.

    It may run beside a crawl, which does not wait for it. A subclass describes itself in class
    attributes and does its work in ``execute``.
    """

    requires_project = True
    requires_crawler_process = False

    usage: ClassVar[str] = "[options]"  #: what follows the name of the command
    headline: ClassVar[str]  #: the line that ``scrapy`` lists
    description: ClassVar[str]  #: the text of ``--help``, with an example
    takes_words: ClassVar[bool] = False  #: whether there are arguments that are no options
    takes_any_words: ClassVar[bool] = False  #: whether they may be options of another program
    has_sources: ClassVar[bool] = False  #: whether there is ``--sources``
    json: ClassVar[str] = ""  #: what ``--json`` prints; "" if there is no such option
    since: ClassVar[str] = ""  #: what ``--since`` selects; "" if there is no such option
    usage_status: ClassVar[int] = 2  #: the exit status of a wrong call
    #: Options beside these, by their names, as ``add_argument`` takes them.
    arguments: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return self.usage

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return self.headline

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return self.description

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add Scrapy's options, those that several commands have, and those of this one."""
        super().add_options(parser)
        if self.has_sources:
            parser.add_argument(
                "--sources", metavar="FILE", help="sources file to use instead of WALSH_SOURCES"
            )
        if self.since:
            parser.add_argument("--since", metavar="WHEN", help=f"{self.since}: {WHEN}")
        if self.json:
            parser.add_argument("--json", action="store_true", help=f"print {self.json}")
        for base in reversed(type(self).__mro__):
            for names, given in vars(base).get("arguments", {}).items():
                parser.add_argument(*names.split(", "), **given)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Check the call, then do the work; an error that the operator can mend is one line."""
        if not self.takes_any_words:
            self._check_words(args)
        if self.since:
            opts.since = self.moment("since", opts.since)
        with clean_exit(), _errors_as_lines():
            self.exitcode = self.execute(args, opts)

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:
        """Do the work and return the exit status; ``opts.since`` is in epoch seconds, or None."""
        raise NotImplementedError

    def refuse(self, message: str) -> NoReturn:
        """Exit with one line: the command was called in a wrong way."""
        usage_error(message, self.usage_status)

    @cached_property
    def name(self) -> str:
        """The name of the command, which is that of its module."""
        return type(self).__module__.rpartition(".")[2]

    @cached_property
    def options(self) -> Options:
        """The options of the project. Raises BadSetting."""
        from walsh_scrapy.options import Options

        return Options.from_settings(self.settings or Settings())

    def state_if_any(self) -> AbstractContextManager[State | None]:
        """Open the state; None if there is none yet. Raises StateError."""
        from walsh_scrapy.state import State

        return State.existing(self.options.state_url)

    @contextmanager
    def state(self) -> Iterator[State]:
        """Open the state. Raises StateError, also if there is none yet."""
        from walsh_scrapy.state.database import StateError, without_password

        with self.state_if_any() as state:
            if state is None:
                raise StateError(
                    f"there is no state at {without_password(self.options.state_url)} yet: no "
                    "crawl was run, or it had another WALSH_STATE_URL"
                )
            yield state

    def prepare_crawl(self, opts: argparse.Namespace, longest_wait: int) -> None:
        """Set for a crawl that answers a question: the longest wait in seconds, warnings only."""
        if self.settings is not None:
            self.settings.set("WALSH_MAX_WAIT", longest_wait, priority="command")
            if opts.loglevel is None:
                self.settings.set("LOG_LEVEL", "WARNING", priority="cmdline")

    def run_spider(self, spider: type[Spider], **arguments: object) -> None:
        """Run a spider in this process until it closes."""
        if self.crawler_process is not None:
            # What the add-on sets aside is said by crawls; here only the answer counts.
            logging.getLogger("walsh_scrapy.addon").setLevel(logging.ERROR)
            self.crawler_process.crawl(spider, **arguments)
            self.crawler_process.start()

    def _check_words(self, args: list[str]) -> None:
        """Refuse unknown options, and arguments where there are none."""
        for word in args:
            is_file = word == "-a" and self.has_sources
            hint = " (the sources file is --sources FILE here)" if is_file else ""
            if word.startswith("-"):
                self.refuse(f"there is no option {word}{hint}; see scrapy {self.name} --help")
            if not self.takes_words:
                self.refuse(f"{self.name} does not take {word}; see scrapy {self.name} --help")

    def moment(self, option: str, text: str | None) -> float | None:
        """Return the epoch seconds of an option's time; exit with status 2 for a wrong one."""
        from walsh_scrapy.policy.durations import parse_since

        try:
            return None if text is None else parse_since(text, time.time())
        except ValueError as error:
            self.refuse(f"--{option}: {error}")


class FileCommand(OperatorCommand):
    """A command that writes one file, whole or not at all, or to standard output."""

    usage = "[options] -o FILE"
    arguments: ClassVar = {
        "-o, --output": {"metavar": "FILE", "help": "a new file, or - for standard output"},
        "-O, --overwrite-output": {
            "metavar": "FILE",
            "help": "the same, but an existing file is replaced",
        },
    }

    def say_written(self, what: str, target: str) -> None:
        """Print on standard error what was written to a file."""
        where = "standard output" if target == "-" else printable(target)
        print(f"{what} written to {where}", file=sys.stderr)

    def target(self, opts: argparse.Namespace) -> str:
        """Return the file that the call names; exit with status 2 if it does not name one.

        The same for the state, the sources file and the blocklist file: -O would replace them.
        Raises BadSetting and StateError.
        """
        from walsh_scrapy.state.database import files_of

        given = [name for name in (opts.output, opts.overwrite_output) if name]
        if len(given) != 1:
            self.refuse(
                "give one file: -o FILE, or -O FILE to replace it; `-o -` is standard output"
            )
        target, options = str(given[0]), self.options
        own = [options.sources, getattr(opts, "sources", None), options.blocklist_file]
        places = [*files_of(options.state_url), *map(Path, filter(None, own))]
        if Path(target).resolve() in {place.resolve() for place in places}:
            self.refuse(f"{printable(target)} is a file of this project; name another one")
        return target


class UrlCommand(OperatorCommand):
    """A command that answers by a crawl: exit status 0 yes, 1 no, 2 unknown or a wrong call."""

    requires_crawler_process = True
    usage = "[options] URL [URL ...]"
    takes_words = True

    longest_wait: ClassVar[int]  #: seconds; a request that has to wait longer is deferred
    example: ClassVar[str]

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Set the longest wait, and log warnings only, unless the options choose others."""
        super().process_options(args, opts)
        self.prepare_crawl(opts, self.longest_wait)

    def check_urls(self, args: list[str]) -> None:
        """Exit with status 2 and one line if there is no URL."""
        if not args:
            self.refuse(f"which URL? Example: {self.example}")

    def open_crawl(self) -> Context:
        """Return options and state; exit with status 2 and one line if the settings are bad."""
        from walsh_scrapy.crawl.context import Context
        from walsh_scrapy.crawl.startup import check_gates
        from walsh_scrapy.options import BadSetting
        from walsh_scrapy.state import State, StateError

        try:
            check_gates(self.settings or Settings())
            return Context(self.options, State(self.options.state_url))
        except (BadSetting, StateError) as error:
            self.refuse(str(error))


def status_of(verdicts: Iterable[bool | None]) -> int:
    """Return 1 if any verdict is False, else 2 if any is None, else 0."""
    given = set(verdicts)
    return 1 if False in given else 2 if None in given else 0


def no_response_reason(error: BaseException | None, url: str) -> str:
    """Return why there is no response to a request of a command."""
    from walsh_scrapy.crawl.failures import reason_of
    from walsh_scrapy.exceptions import Denied, RequestDeferred

    if isinstance(error, Denied):
        return f"denied by {error.gate}: {error.reason}"
    return str(error) if isinstance(error, RequestDeferred) else reason_of(error, url)


def announce_requests() -> None:
    """Say at a terminal why the answer takes a while."""
    if sys.stderr.isatty():
        print("sending requests, with the pauses of each host ...", file=sys.stderr)


@contextmanager
def _errors_as_lines() -> Iterator[None]:
    """Exit with status 1 and one line, not a traceback, for an error that operators can mend."""
    from sqlalchemy.exc import DBAPIError

    from walsh_scrapy.exceptions import refuse_to_start
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.sources.source import SourcesError
    from walsh_scrapy.state import StateError

    try:
        yield
    except (BadSetting, CommandError, SourcesError, StateError) as error:
        refuse_to_start(error, log_file=None)
    except DBAPIError as error:
        refuse_to_start(StateError(f"the state failed: {error.orig}"), log_file=None)
