"""The call of a command: its arguments, the settings, and the files that it reads and writes."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

from walsh_scrapy.files import UnreadableFile, atomic_file, read_within
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from scrapy import Spider
    from scrapy.settings import Settings

    from walsh_scrapy.options import Identity, Options
    from walsh_scrapy.state import State

#: The extra of this package that installs a missing module.
_EXTRAS: Final = {
    "jinja2": "report",
    "pytest": "testing",
    "trustme": "testing",
}
#: Settings of a run that is no crawl, and must not touch the exports and the job of the project.
_NO_OUTPUT: Final[dict[str, Any]] = {
    "FEEDS": {},
    "ITEM_PIPELINES": {},
    "JOBDIR": None,
    "HTTPCACHE_ENABLED": False,  # the command is about what the site answers now
}


class CommandError(Exception):
    """A command failed; the message says why, and what to do.

    The message may quote a site or a file, so control characters in it are escaped.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class WrongCall(CommandError):
    """The arguments are wrong; the message says what to write instead."""


class Unusable(CommandError):
    """There is no project, its settings cannot be read, or its state cannot do what is asked."""


class Call:
    """One call of a command: the arguments, and the settings of the project if there is one."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments

    @cached_property
    def has_project(self) -> bool:
        """Whether this folder is in a Scrapy project. Does not import Scrapy, which is slow."""
        here = Path.cwd()
        is_project = any((folder / "scrapy.cfg").is_file() for folder in (here, *here.parents))
        return is_project or "SCRAPY_SETTINGS_MODULE" in os.environ

    def check_project(self) -> None:
        """Raise Unusable outside of a project."""
        if not self.has_project:
            raise Unusable(
                "there is no Scrapy project here; go to a folder with a scrapy.cfg, or create a "
                f"project with `{program_name()} init FOLDER`"
            )

    @cached_property
    def settings(self) -> Settings:
        """The settings of the project, or the defaults of Scrapy, with the values of ``-s``.

        Raises Unusable if the settings cannot be read.
        """
        from scrapy.utils.project import get_project_settings

        try:
            settings = get_project_settings()
        except Exception as error:  # the settings module may raise anything
            module = os.environ.get("SCRAPY_SETTINGS_MODULE")
            raise Unusable(
                f"the settings {module} cannot be read: {type(error).__name__}: {error}"
            ) from error
        if self.has_project and "SCRAPY_SETTINGS_MODULE" not in os.environ:
            name = os.environ.get("SCRAPY_PROJECT", "default")
            raise Unusable(f"scrapy.cfg has no settings module for the project {name!r}")
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

    @cached_property
    def identity(self) -> Identity:
        """The identity of the project. Raises BadSetting if it has none."""
        from walsh_scrapy.options import identity_of, no_identity

        identity = identity_of(self.settings)
        if identity is None:
            raise no_identity(self.settings)
        return identity

    @property
    def sources_file(self) -> str:
        """The sources file that the call names, or the sources file of the project."""
        return str(self.arguments.sources or self.options.sources)

    def state_if_any(
        self, upgrade: Callable[[str], None] | None = None
    ) -> AbstractContextManager[State | None]:
        """Open the state database, or return None if there is none yet. Raises StateError.

        ``upgrade`` is that of `State`.
        """
        from walsh_scrapy.state import State

        return State.existing(self.options.state_url, upgrade)

    @contextmanager
    def state(self, upgrade: Callable[[str], None] | None = None) -> Iterator[State]:
        """Open the state database. Raises StateError, also if there is none yet."""
        from walsh_scrapy.state import StateError
        from walsh_scrapy.state.engine import without_password

        with self.state_if_any(upgrade) as state:
            if state is None:
                raise StateError(
                    f"there is no state database at {without_password(self.options.state_url)}: "
                    "run a crawl first, or set WALSH_STATE_URL to the database of your crawls"
                )
            yield state

    def check_gates(self) -> None:
        """Raise BadSetting if the add-on or the identity is missing, or if an option is wrong."""
        from walsh_scrapy.crawl.startup import check_gates

        check_gates(self.settings)
        _ = self.identity, self.options

    def crawl(self, spider: type[Spider], max_wait: int, **arguments: object) -> None:
        """Run a spider until it closes, with warnings only in the log.

        A request that must wait for longer than ``max_wait`` seconds is deferred.
        """
        import logging

        from scrapy.crawler import AsyncCrawlerProcess

        settings = self.settings
        for name, value in _NO_OUTPUT.items():
            settings.set(name, value, priority="spider")
        settings.set("WALSH_MAX_WAIT", max_wait, priority="command")
        if not self.arguments.loglevel:
            settings.set("LOG_LEVEL", "WARNING", priority="cmdline")
        self.check_gates()
        if sys.stderr.isatty():
            print("sending requests, with the delay of each host ...", file=sys.stderr)
        process = AsyncCrawlerProcess(settings)
        # The add-on would warn about settings that it overrides, which only matters for crawls.
        logging.getLogger("walsh_scrapy.addon").setLevel(logging.ERROR)
        crawl = process.crawl(spider, **arguments)
        process.start()
        if crawl.done():
            crawl.result()  # raises the error of a start that was refused


@contextmanager
def clean_exit() -> Iterator[None]:
    """Exit with one line, not a traceback, for each error that an operator can fix.

    The status is 1 if the output cannot be written (without a line if its reader closed the pipe),
    2 if an extra of this package is not installed, and 130 after Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):  # print `\\xe9` where the encoding lacks a character
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
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
    except Exception as error:  # noqa: BLE001 - raised again if no operator can fix it
        fail(*_explain(error))


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message and the exit status, or raise the error if no operator can fix it."""
    from sqlalchemy.exc import DBAPIError

    from walsh_scrapy.feeds.sources.source import SourcesError
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.state import StateError

    if isinstance(error, DBAPIError):
        return f"the state database failed: {error.orig}", 3
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
    """Drop the buffered output, which Python would try to write again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Output(NamedTuple):
    """The file to which a call writes."""

    target: str  #: `-` for standard output
    replaces: bool  #: whether a file that exists is replaced

    @classmethod
    def from_call(cls, call: Call) -> Self:
        """Return the file that the call names. Raises WrongCall, BadSetting and StateError.

        The state database, the sources file and the blocklist file are refused, because -O would
        replace them.
        """
        from walsh_scrapy.state.database import files_of

        new = call.arguments.output
        replaced = call.arguments.overwrite_output
        if bool(new) == bool(replaced):
            raise WrongCall("name one file: -o FILE, or -O FILE to replace one that exists")
        target = str(new or replaced)
        options = call.options
        names = [
            options.sources,
            getattr(call.arguments, "sources", None),
            options.blocklist_file,
        ]
        places = [*files_of(options.state_url), *(Path(name) for name in names if name)]
        if os.path.realpath(target) in {os.path.realpath(place) for place in places}:
            raise WrongCall(f"{target} is a file of this project; name another file")
        return cls(target, replaces=not new)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file, or standard output for `-`.

        Raises CommandError if the file must not be replaced, or cannot be written.
        """
        try:
            if not self.replaces and Path(self.target).is_file():
                raise CommandError(
                    f"{self.target} already exists; write -O instead of -o to replace it"
                )
            if self.target == "-":
                with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as file:
                    yield file
            else:
                with atomic_file(Path(self.target)) as file:
                    yield file
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CommandError(
                f"{self.target} cannot be written: {error.strerror or error}"
            ) from error

    @property
    def name(self) -> str:
        """The name of the file for messages."""
        return "standard output" if self.target == "-" else printable(self.target)

    def report(self, content: str) -> None:
        """Print a line about what was written, on standard error."""
        print(f"{content} written to {self.name}", file=sys.stderr)


def read_file(name: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`. Raises WrongCall."""
    try:
        if name == "-":
            return read_within(sys.stdin.buffer)
        with Path(name).open("rb") as file:  # this also opens a pipe: `--robots <(curl …)`
            return read_within(file)
    except UnreadableFile as error:
        raise WrongCall(f"{name}: {error}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if name.startswith(("http://", "https://")):
            raise WrongCall(
                f"{name} is a URL, not a file; download it first, for example with curl"
            ) from error
        reason = getattr(error, "strerror", None) or error
        raise WrongCall(f"{name} cannot be read: {reason}") from error
