"""A call of a tool: its arguments, its settings, its state, and its errors.

A tool is a module: ``run(call)`` does its work and returns the exit status. It fails with an
exception whose message is one line: ``WrongCall`` (exit status 2), ``Unusable`` (3), or
``CommandError`` (1). The arguments of a tool and its help are in ``walsh_scrapy.console.commands``.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from walsh_scrapy.policy.wording import printable
from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from scrapy import Spider
    from scrapy.settings import Settings

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State

#: The extra of this package that installs a module which is not there.
_EXTRAS: Final = {
    "jinja2": "report",
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


class CommandError(Exception):
    """A tool cannot do its work; the message has the reason and the remedy.

    It may have text of strangers, and is made printable.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class WrongCall(CommandError):
    """A tool was called in a wrong way; the message has the right call."""


class Unusable(CommandError):
    """There is no project, or its settings cannot be read."""


class Call:
    """One call of a tool: its arguments, and the settings of the project, if there is one."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments

    @cached_property
    def has_project(self) -> bool:
        """Whether Scrapy has settings here; to know that, Scrapy is not imported."""
        here = Path.cwd()
        is_project = any((folder / "scrapy.cfg").is_file() for folder in (here, *here.parents))
        return is_project or "SCRAPY_SETTINGS_MODULE" in os.environ

    def check_project(self) -> None:
        """Raise Unusable outside a project."""
        if not self.has_project:
            raise Unusable(
                "there is no Scrapy project here; go to the folder that has its scrapy.cfg, or "
                f"begin one with `{program_name()} init FOLDER`"
            )

    @cached_property
    def settings(self) -> Settings:
        """The settings of the project, or else Scrapy's defaults; and those of ``-s``.

        Raises Unusable if the settings cannot be read.
        """
        from scrapy.utils.project import get_project_settings

        try:
            settings = get_project_settings()
        except Exception as error:  # a project's settings may raise anything
            module = os.environ.get("SCRAPY_SETTINGS_MODULE")
            problem = f"{type(error).__name__}: {error}"
            raise Unusable(f"the settings {module} cannot be read: {problem}") from error
        if self.has_project and "SCRAPY_SETTINGS_MODULE" not in os.environ:
            name = os.environ.get("SCRAPY_PROJECT", "default")
            raise Unusable(f"scrapy.cfg names no settings of the project {name!r}")
        for where in ("settings", "action_settings"):
            settings.setdict(dict(getattr(self.arguments, where, ())), priority="cmdline")
        if level := getattr(self.arguments, "loglevel", None):
            settings.setdict({"LOG_ENABLED": True, "LOG_LEVEL": level}, priority="cmdline")
        return settings

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
        from walsh_scrapy.state import StateError
        from walsh_scrapy.state.url import without_password

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
        if not self.arguments.loglevel:
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


@contextmanager
def clean_exit() -> Iterator[None]:
    """Exit with one line, not a traceback, for each error that an operator can mend.

    The status is 1 if the output cannot be written, or its reader has closed the pipe, which needs
    no line; 130 after Ctrl-C; 2 if an extra of this package is not installed.
    """
    for stream in (sys.stdout, sys.stderr):  # `\\xe9` for characters that a terminal does not have
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # `head`, for example, has read enough
        _discard_output()
        raise SystemExit(1) from None
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        fail(f"this needs {package}: pip install 'walsh-scrapy[{_EXTRAS[package]}]'", 2)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        _discard_output()
        fail(f"the output cannot be written: {error.strerror}", 1)
    except CommandError as error:
        fail(str(error), {WrongCall: 2, Unusable: 3}.get(type(error), 1))
    except Exception as error:  # noqa: BLE001 - raised again if no operator can mend it
        fail(*_explain(error))


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message and the exit status; raise the error again if no operator can mend it."""
    from sqlalchemy.exc import DBAPIError

    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.sources.source import SourcesError
    from walsh_scrapy.state import StateError

    if isinstance(error, DBAPIError):
        return f"the state failed: {error.orig}", 3
    if isinstance(error, BadSetting | StateError):
        return str(error), 3
    if isinstance(error, SourcesError):
        return str(error), 1
    raise error


def warn(message: str) -> None:
    """Print one line on standard error."""
    print(f"walsh: {message}", file=sys.stderr)


def fail(message: str, status: int) -> NoReturn:
    """Exit with one line on standard error."""
    warn(message)
    raise SystemExit(status)


def _discard_output() -> None:
    """Let Python drop its unwritten output, or it would try again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
