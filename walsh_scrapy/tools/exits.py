"""Exit statuses of the commands, and the one line on standard error that explains them."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from walsh_scrapy.policy.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The extra of this package that installs a module which is not there.
_EXTRAS: Final = {
    "jinja2": "report",
    "prometheus_client": "status",
    "pygal": "report",
    "pytest": "testing",
    "trustme": "testing",
}


class CommandError(Exception):
    """A command cannot do what it was called for; the message says why and what to do.

    It may have text of strangers, and is made printable.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


@contextmanager
def clean_exit() -> Iterator[None]:
    """Exit with status 1 and one line, not a traceback, if the output cannot be written.

    Exits with status 2 and one line if an extra of this package is not installed, with status 1 and
    no line if the reader of the output has closed its pipe, and with status 130 on Ctrl-C.
    """
    _escape_unprintable_characters()
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # `head`, for example, has read enough
        _discard_output()
        raise SystemExit(1) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        _discard_output()
        raise SystemExit(f"walsh-scrapy: the output cannot be written: {error.strerror}") from None
    except ModuleNotFoundError as error:
        usage_error(missing_extra(error))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def missing_extra(error: ModuleNotFoundError) -> str:
    """Return which extra has a module that is not installed; raise ``error`` if none has."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        raise error
    return f"this needs {package}: pip install 'walsh-scrapy[{_EXTRAS[package]}]'"


def usage_error(message: str, status: int = 2) -> NoReturn:
    """Exit with status 2, or another, and one line: the command was called in a wrong way."""
    print(f"walsh-scrapy: {message}", file=sys.stderr)
    raise SystemExit(status)


def _discard_output() -> None:
    """Let Python drop what it could not write, or it would try again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escape_unprintable_characters() -> None:
    r"""Print `\xe9` for a character that the terminal's encoding does not have, and go on."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
