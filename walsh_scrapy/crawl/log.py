"""The log of a process: safe for a terminal, as text or JSON, without lines that nobody needs."""

from __future__ import annotations

import copy
import errno
import json
import logging
import re
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy.utils.log import get_scrapy_root_handler

from walsh_scrapy.policy.wording import cut, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

#: Of a message on one line; no message of this package needs as many.
MAX_LINE_CHARACTERS: Final = 4_000
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BETWEEN_BREAKS: Final = re.compile(r"[^\n\t]+")


def protect_log(handler: logging.Handler, disk_is_full: Callable[[], None]) -> None:
    """Let the handler of the log write safe lines.

    ``disk_is_full`` is called, in whatever thread, for the first line that finds the disk full.
    """
    if not isinstance(handler.handleError, _Unwritten):
        if not isinstance(handler.formatter, SafeFormatter):
            handler.setFormatter(SafeFormatter((handler.formatter or logging.Formatter()).format))
        handler.handleError = _Unwritten(handler, disk_is_full)  # type: ignore[method-assign]


class _Unwritten:
    """The reaction of a handler to a record that it cannot write.

    Python prints a traceback for each. If the disk is full, one line is enough.
    """

    def __init__(self, handler: logging.Handler, disk_is_full: Callable[[], None]) -> None:
        self._otherwise = handler.handleError
        self._name = getattr(handler, "baseFilename", "on standard error")
        self._disk_is_full = disk_is_full
        self._is_told = False

    def __call__(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not (isinstance(error, OSError) and error.errno in _FULL):
            self._otherwise(record)
        elif not self._is_told:
            self._is_told = True
            print(
                f"walsh-scrapy: the log {self._name} cannot be written: {error.strerror}; free "
                "some space; the run ends, and due sources stay due",
                file=sys.stderr,
            )
            self._disk_is_full()


class SafeFormatter(logging.Formatter):
    """Formats a record as ``inner`` does, with the text of others on one line and bounded.

    The values of a record are texts of others; the message around them is the code's. If that has
    several lines, so may its values: Scrapy logs tables of settings. A traceback keeps its lines.
    No other control character stays.
    """

    def __init__(self, inner: Callable[[logging.LogRecord], str]) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or the lines, of a record."""
        text = self._inner(record)
        if text.isprintable() and len(text) <= MAX_LINE_CHARACTERS:
            return text
        if "\n" not in str(record.msg):
            record = copy.copy(record)
            record.msg = cut(printable(record.getMessage()), MAX_LINE_CHARACTERS)
            record.args = None
            text = self._inner(record)
        return _escape_lines(text)


class JsonFormatter(SafeFormatter):
    """Formats a record as one JSON object in ASCII, without a line break.

    `time` is RFC 3339 in UTC, `level` the name of the level, `logger` the name of the logger.
    `message`, and `exception` with its traceback if there is one, are as safe and as bounded as in
    a log of text. Other attributes of a record are omitted: Scrapy attaches its spiders.
    """

    def __init__(self) -> None:
        super().__init__(logging.LogRecord.getMessage)

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as text."""
        moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        fields = {
            "time": f"{moment.isoformat(timespec='milliseconds')}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": super().format(record),
        }
        if record.exc_info:
            fields["exception"] = _escape_lines(self.formatException(record.exc_info))
        return json.dumps(fields)


def _escape_lines(text: str) -> str:
    return _BETWEEN_BREAKS.sub(lambda match: printable(match[0]), text)


_installed: logging.Handler | None = None


def log_handler() -> logging.Handler | None:
    """Return the handler that writes the log of this process: ours, or Scrapy's, if any."""
    return get_scrapy_root_handler() or _installed


def install_json_log(settings: BaseSettings) -> None:
    """Write the log as JSON, to the place and from the level that Scrapy's settings name.

    Scrapy takes no formatter, and makes a handler at the start and another one when a crawl begins.
    So our handler replaces both (``LOG_INSTALL_ROOT_HANDLER``), and no line is text.
    """
    global _installed  # noqa: PLW0603 - the log belongs to the process, as Scrapy's does
    if _installed:
        logging.root.removeHandler(_installed)
        _installed.close()
    settings.set("LOG_INSTALL_ROOT_HANDLER", False, priority="cmdline")
    _installed = _handler(settings)
    logging.root.setLevel(logging.NOTSET)
    logging.root.addHandler(_installed)


def _handler(settings: BaseSettings) -> logging.Handler:
    handler: logging.Handler = logging.NullHandler()
    if file := settings["LOG_FILE"]:
        if not settings.getbool("LOG_FILE_APPEND"):
            Path(file).write_bytes(b"")
        # Scrapy closes all handlers afterwards, and only one that appends opens its file again.
        handler = logging.FileHandler(file, mode="a", encoding="ascii")
    elif settings.getbool("LOG_ENABLED"):
        handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    handler.setLevel(settings["LOG_LEVEL"])
    return handler


#: The beginnings of lines, by logger, that mean nothing for a run. Our own line explains why a
#: source failed, so `httperror` is among them.
UNNEEDED: Final = {
    "scrapy.addons": ("Enabled addons",),
    "scrapy.core.engine": ("Spider opened", "Closing spider", "Spider closed"),
    "scrapy.crawler": ("Overridden settings",),
    "scrapy.middleware": ("Enabled ",),
    "scrapy.spidermiddlewares.httperror": ("Ignoring response",),
    "scrapy.utils.log": ("Scrapy ", "Versions"),
}


def quiet_scrapy() -> None:
    """Turn needless INFO lines into DEBUG lines, for the rest of the process.

    These are filters, because Scrapy resets the levels of loggers when it sets up its log.
    """
    for name, beginnings in UNNEEDED.items():
        logging.getLogger(name).addFilter(partial(_demote, beginnings))


def _demote(beginnings: tuple[str, ...], record: logging.LogRecord) -> bool:
    """Turn an INFO line with one of these beginnings into a DEBUG line, and let it pass.

    The level of the handler then decides whether it is written.
    """
    if record.levelno == logging.INFO and str(record.msg).startswith(beginnings):
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return True
