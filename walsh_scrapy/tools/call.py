"""A call of a tool: its arguments, its state and output, and its errors.

A tool is a module. Its docstring has the text of ``--help`` after its first line,
``options(parser)`` adds its arguments, and ``run(call)`` does its work and returns the exit status.
``scrapy X`` and ``walsh X`` call the same one. There are two ways to fail, each an exception with a
sentence: ``WrongCall``, and ``CommandError`` for a failure. Their exit statuses are 2 and 1, unless
the module sets others (``WRONG_CALL``, ``FAILED``).
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from walsh_scrapy.policy.wording import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from types import ModuleType

    from scrapy import Spider
    from scrapy.settings import Settings

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State

#: The extra of this package that installs a module which is not there.
_EXTRAS: Final = {
    "jinja2": "report",
    "prometheus_client": "status",
    "pygal": "report",
    "pytest": "testing",
    "trustme": "testing",
}
#: Settings of a run that is not a crawl: it leaves the project's exports, pipelines and job alone.
_NO_OUTPUT: Final[dict[str, Any]] = {
    "FEEDS": {},
    "ITEM_PIPELINES": {},
    "JOBDIR": None,
    "HTTPCACHE_ENABLED": False,  # the answer is about a site's present answers
}
_WHEN: Final = "today, yesterday, 1d (a day ago), a date, an RFC 3339 time"


class CommandError(Exception):
    """A tool cannot do its work; the message has the reason and the remedy.

    It may have text of strangers, and is made printable.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class WrongCall(CommandError):
    """A tool was called in a wrong way; the message has the right call."""


class Call:
    """One call of a tool: its arguments, and the settings of the project, if there is one."""

    def __init__(self, arguments: argparse.Namespace, settings: Settings | None = None) -> None:
        self.arguments = arguments
        self.has_project = settings is not None
        self.settings = cast("Settings", settings)  # no tool of ``walsh`` reads any

    @cached_property
    def options(self) -> Options:
        """The options of the project. Raises BadSetting."""
        from walsh_scrapy.options import Options

        return Options.from_settings(self.settings)

    @property
    def sources_file(self) -> str:
        """The sources file that the call names, or else that of the project."""
        return str(self.arguments.sources or self.options.sources)

    def state_if_any(self) -> AbstractContextManager[State | None]:
        """Open the state; None if there is none yet. Raises StateError."""
        from walsh_scrapy.state import State

        return State.existing(self.options.state_url)

    @contextmanager
    def state(self) -> Iterator[State]:
        """Open the state. Raises StateError, even if there is none yet."""
        from walsh_scrapy.state.database import StateError, without_password

        with self.state_if_any() as state:
            if state is None:
                raise StateError(
                    f"there is no state at {without_password(self.options.state_url)} yet: no "
                    "crawl was run, or it had another WALSH_STATE_URL"
                )
            yield state

    def check_gates(self) -> None:
        """Raise BadSetting if a crawl would have no middlewares, or a wrong option."""
        from walsh_scrapy.crawl.startup import check_gates

        check_gates(self.settings)
        _ = self.options

    def crawl(self, spider: type[Spider], longest_wait: int, **arguments: object) -> None:
        """Run a spider until it closes; only the answer counts, so the log has warnings only.

        A request that must wait for longer than ``longest_wait`` seconds is deferred.
        """
        import logging

        from scrapy.crawler import AsyncCrawlerProcess

        settings = self.settings
        for name, value in _NO_OUTPUT.items():
            settings.set(name, value, priority="spider")
        settings.set("WALSH_MAX_WAIT", longest_wait, priority="command")
        if self.arguments.loglevel is None:
            settings.set("LOG_LEVEL", "WARNING", priority="cmdline")
        self.check_gates()
        if sys.stderr.isatty():
            print("sending requests, with the delays of each host ...", file=sys.stderr)
        process = AsyncCrawlerProcess(settings)
        # Crawls log the settings that the add-on sets aside.
        logging.getLogger("walsh_scrapy.addon").setLevel(logging.ERROR)
        crawl = process.crawl(spider, **arguments)
        process.start()
        if crawl.done():
            crawl.result()  # raises the error of a start that was refused


def status_of(verdicts: Iterable[bool | None]) -> int:
    """Return 1 if any verdict is False, else 2 if any is None, else 0."""
    given = set(verdicts)
    return 1 if False in given else 2 if None in given else 0


def run_tool(tool: ModuleType, call: Call) -> int:
    """Run a tool and return its exit status; a failure is one line on standard error."""
    with clean_exit(tool):
        status: int = tool.run(call)
        return status


@contextmanager
def clean_exit(tool: ModuleType | None = None) -> Iterator[None]:
    """Exit with one line, not a traceback, for each error that an operator can mend.

    The status is 1 if the output cannot be written, or its reader has closed the pipe, which needs
    no line; 130 after Ctrl-C; that of a wrong call if an extra of this package is not installed.
    """
    for stream in (sys.stdout, sys.stderr):  # `\\xe9` for characters that a terminal does not have
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    wrong = getattr(tool, "WRONG_CALL", 2)
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # `head`, for example, has read enough
        _discard_output()
        raise SystemExit(1) from None
    except WrongCall as error:
        fail(str(error), wrong)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        fail(f"this needs {package}: pip install 'walsh-scrapy[{_EXTRAS[package]}]'", wrong)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        _discard_output()
        fail(f"the output cannot be written: {error.strerror}", 1)
    except Exception as error:  # noqa: BLE001 - raised again if no operator can mend it
        fail(_sentence(error), getattr(tool, "FAILED", 1))


def _sentence(error: Exception) -> str:
    """Return the message of an error; raise it again if no operator can mend it."""
    if isinstance(error, CommandError):
        return str(error)
    from sqlalchemy.exc import DBAPIError

    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.sources.source import SourcesError
    from walsh_scrapy.state import StateError

    if isinstance(error, DBAPIError):
        return f"the state failed: {error.orig}"
    if isinstance(error, BadSetting | SourcesError | StateError):
        return str(error)
    raise error


def fail(message: str, status: int) -> NoReturn:
    """Exit with one line on standard error."""
    print(f"walsh-scrapy: {message}", file=sys.stderr)
    raise SystemExit(status)


def _discard_output() -> None:
    """Let Python drop its unwritten output, or it would try again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ---- arguments ----


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with one line."""
        fail(f"{printable(message)}; see {self.prog} --help", 2)


def typed(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a ``type`` for ``add_argument`` that shows the sentences of ValueErrors."""

    def checked(text: str) -> Any:  # noqa: ANN401 - as ``read`` returns
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def add_actions(parser: argparse.ArgumentParser, *, required: bool = False) -> Any:  # noqa: ANN401
    """Let the first argument choose the action; return the object for their parsers."""
    return parser.add_subparsers(
        dest="action", required=required, metavar="ACTION", parser_class=Parser, prog=parser.prog
    )


def add_json(parser: argparse.ArgumentParser, what: str = "one JSON array") -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help=f"print {what}")


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add ``--sources``."""
    parser.add_argument(
        "--sources", metavar="FILE", help="sources file to use instead of WALSH_SOURCES"
    )
    parser.add_argument("-a", type=typed(_refuse_argument), help=argparse.SUPPRESS)


def _refuse_argument(_: str) -> NoReturn:
    raise ValueError("spiders take that; the sources file is --sources FILE here")


def add_since(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--since``, in epoch seconds or None; ``what`` is its effect."""
    from walsh_scrapy.policy.durations import parse_since

    read = typed(lambda text: parse_since(text, time.time()))
    parser.add_argument("--since", metavar="WHEN", type=read, help=f"{what}: {_WHEN}")
