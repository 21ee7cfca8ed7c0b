"""A start that is refused: an exception in a program, and one line where a command runs.

Where nobody catches an exception, a command of Scrapy shows a traceback: Python prints it, or the
log has it, for a task of asyncio or a Deferred of Twisted. For a refusal each of them shows one
line.
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

#: The loggers of exceptions in tasks and Deferreds that nobody awaits.
_REPORTERS: Final = ("asyncio", "twisted")
#: The line that Twisted logs before such an exception.
_HEADLINE: Final = "Unhandled error in Deferred:"
#: The attribute of a refusal that has the ``LOG_FILE`` of its crawl.
_LOG_FILE: Final = "_walsh_log_file"
#: Of each refusal in this process: the command of Scrapy does not know why its crawl did not start.
_exit_statuses: list[int] = []


def refuse_to_start(error: Exception, *, log_file: str | None) -> NoReturn:
    """Raise an error before anything is sent. If nobody catches it, it is shown as one line.

    Outside an event loop the exception is a SystemExit too, so that Python shows one line. In a
    loop a SystemExit would end the whole program, which may want to catch the error.
    """
    _exit_statuses.append(2 if isinstance(error, WrongArgument) else 1)
    refusal = error if _is_in_loop() else _with_system_exit(error)
    setattr(refusal, _LOG_FILE, log_file)
    for name in _REPORTERS:
        logging.getLogger(name).addFilter(_show_one_line)
    if isinstance(refusal, SystemExit):
        _keep_twisted_from_printing()
        _log(refusal)
    raise refusal from None


def exit_status() -> int:
    """Return 2 if a start in this process was refused for a wrong argument, else 1."""
    return max(_exit_statuses, default=1)


@cache
def _keep_twisted_from_printing() -> None:
    """Let Twisted log errors without printing them, which it does until a log is set up."""
    globalLogBeginner.beginLoggingTo((), discardBuffer=True, redirectStandardIO=False)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _with_system_exit(error: Exception) -> Exception:
    """Return the same error as an exception that is a SystemExit too."""
    kind = type(error)
    bases = (kind, SystemExit)
    combined: type[Exception] = type(kind.__name__, bases, {"__module__": kind.__module__})
    refusal = combined(*error.args)
    refusal.code = _line(error)  # type: ignore[attr-defined]  # of SystemExit
    return refusal


def _line(error: BaseException) -> str:
    return f"walsh-scrapy: {error}"


def _log(refusal: BaseException) -> None:
    """Log a refusal if the log is a file, as under Scrapyd, or a log of JSON."""
    if getattr(refusal, _LOG_FILE) or (get_scrapy_root_handler() is None and logging.root.handlers):
        logging.getLogger("walsh_scrapy").critical("%s", refusal)


def _show_one_line(record: logging.LogRecord) -> bool:
    """Show a refusal as one line in place of a record with its traceback."""
    if record.exc_info is None and record.getMessage().startswith(_HEADLINE):
        return False  # the next record has the error
    error = record.exc_info[1] if record.exc_info else None
    if error is None or not hasattr(error, _LOG_FILE):
        return True
    print(_line(error), file=sys.stderr)
    if not isinstance(error, SystemExit):
        _log(error)
    return False
