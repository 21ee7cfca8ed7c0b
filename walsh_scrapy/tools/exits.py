"""Exit statuses of the commands, and the one line on standard error that explains them."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class CommandError(Exception):
    """A command cannot do what it was called for; the message says why and what to do."""


@contextmanager
def clean_exit() -> Iterator[None]:
    """Exit with status 1 and one line, not a traceback, if the block fails in a known way.

    That the disk is full under the output is such a way. Exits with status 1 and no line if the
    reader of the output has closed its pipe, and with status 130 on Ctrl-C.
    """
    from sqlalchemy.exc import DBAPIError

    from walsh_scrapy.exceptions import refuse_to_start
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.sources import SourcesError
    from walsh_scrapy.state import StateError
    from walsh_scrapy.tools.sources.lookup import UnknownSource

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
    except (BadSetting, CommandError, SourcesError, StateError, UnknownSource) as error:
        refuse_to_start(error, log_file=None)
    except DBAPIError as error:
        refuse_to_start(StateError(f"the state failed: {error.orig}"), log_file=None)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def usage_error(message: str) -> NoReturn:
    """Exit with status 2 and one line: the command was called in a wrong way."""
    print(f"walsh-scrapy: {message}", file=sys.stderr)
    raise SystemExit(2)


def sources_hint(args: Sequence[str]) -> str:
    """Return what to add to the refusal of ``args`` that name the sources file as a crawl does."""
    return " (the sources file is --sources FILE here)" if "-a" in args else ""


def _discard_output() -> None:
    """Let Python drop what it could not write, or it would try again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escape_unprintable_characters() -> None:
    r"""Print `\xe9` for a character that the terminal's encoding does not have, and go on."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
