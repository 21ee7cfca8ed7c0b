"""A start that is refused: an exception for a program, and one line for a command.

A command of Scrapy shows a traceback for an exception: Python does for one that nobody catches, and
the log for one in a task of asyncio or a Deferred of Twisted that nobody awaits. In all these
places a refusal is one line.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import cache
from typing import Final, NoReturn

from scrapy.utils.log import get_scrapy_root_handler
from twisted.logger import globalLogBeginner

from walsh_scrapy.options import WrongArgument

#: The loggers of exceptions that nobody has awaited.
_REPORTERS: Final = ("asyncio", "twisted")
#: The line that Twisted logs before such an exception.
_HEADLINE: Final = "Unhandled error in Deferred:"
#: The attribute of a refusal that has the ``LOG_FILE`` of its crawl.
_LOG_FILE: Final = "_walsh_log_file"
#: For each refusal of this process: Scrapy's command does not know why its crawl did not start.
_exit_statuses: list[int] = []


def refuse_to_start(error: Exception, *, log_file: str | None) -> NoReturn:
    """Raise an error before anything is sent; if nobody catches it, it is shown as one line.

    Where no event loop runs, what is raised is a SystemExit too, so that Python shows one line. In
    a loop that would end the whole program, which may catch the error.
    """
    _exit_statuses.append(2 if isinstance(error, WrongArgument) else 1)
    refusal = error if _is_in_loop() else _ending(error)
    setattr(refusal, _LOG_FILE, log_file)
    for name in _REPORTERS:
        logging.getLogger(name).addFilter(_show_one_line)
    if isinstance(refusal, SystemExit):
        _keep_twisted_from_printing()
        _log(refusal)
    raise refusal from None


def exit_status() -> int:
    """Return 2 for a command whose start was refused for a wrong argument, else 1."""
    return max(_exit_statuses, default=1)


@cache
def _keep_twisted_from_printing() -> None:
    """Let Twisted only log errors: until a program sets up its log, it prints them as well."""
    globalLogBeginner.beginLoggingTo((), discardBuffer=True, redirectStandardIO=False)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _ending(error: Exception) -> Exception:
    """Return the same error as one with which a program may end."""
    kind = type(error)
    both: type[Exception] = type(kind.__name__, (kind, SystemExit), {"__module__": kind.__module__})
    ending = both(*error.args)
    ending.code = _line(error)  # type: ignore[attr-defined]  # of SystemExit
    return ending


def _line(error: BaseException) -> str:
    return f"walsh-scrapy: {error}"


def _log(refusal: BaseException) -> None:
    """Log a refusal if the log is a file, as under Scrapyd, or not Scrapy's, but one of JSON."""
    if getattr(refusal, _LOG_FILE) or (get_scrapy_root_handler() is None and logging.root.handlers):
        logging.getLogger("walsh_scrapy").critical("%s", refusal)


def _show_one_line(record: logging.LogRecord) -> bool:
    """Show a refusal as one line in place of a record with its traceback."""
    if record.exc_info is None and record.getMessage().startswith(_HEADLINE):
        return False  # it says nothing that the next record does not
    error = record.exc_info[1] if record.exc_info else None
    if error is None or not hasattr(error, _LOG_FILE):
        return True
    print(_line(error), file=sys.stderr)
    if not isinstance(error, SystemExit):
        _log(error)
    return False
