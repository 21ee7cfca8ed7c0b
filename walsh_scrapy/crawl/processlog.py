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
_DISK_IS_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BETWEEN_BREAKS: Final = re.compile(r"[^\n\t]+")


def protect_log(handler: logging.Handler, on_full_disk: Callable[[], None]) -> None:
    """Let the handler of the log write safe lines.

    ``on_full_disk`` is called once, in any thread, if the disk of the log is full.
    """
    if isinstance(handler.handleError, _ErrorHandler):
        return
    if not isinstance(handler.formatter, SafeFormatter):
        formatter = handler.formatter or logging.Formatter()
        handler.setFormatter(SafeFormatter(formatter.format))
    handler.handleError = _ErrorHandler(handler, on_full_disk)  # type: ignore[method-assign]


class _ErrorHandler:
    """Handles the records that a handler cannot write, in the place of its ``handleError``.

    Python prints a traceback for each. If the disk is full, one line is enough.
    """

    def __init__(self, handler: logging.Handler, on_full_disk: Callable[[], None]) -> None:
        self._handle_other_error = handler.handleError
        self._name = getattr(handler, "baseFilename", "on standard error")
        self._on_full_disk = on_full_disk
        self._has_printed = False

    def __call__(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not (isinstance(error, OSError) and error.errno in _DISK_IS_FULL):
            self._handle_other_error(record)
        elif not self._has_printed:
            self._has_printed = True
            print(
                f"walsh-scrapy: the log {self._name} cannot be written: {error.strerror}; free "
                "some space; the run ends, and due sources stay due",
                file=sys.stderr,
            )
            self._on_full_disk()


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


_json_handler: logging.Handler | None = None


def log_handler() -> logging.Handler | None:
    """Return the handler that writes the log of this process, if there is one."""
    return get_scrapy_root_handler() or _json_handler


def install_json_log(settings: BaseSettings) -> None:
    """Write the log as JSON, to the place and from the level that the settings of Scrapy name.

    Scrapy makes a handler at its start and another one when a crawl begins, and its settings name
    no formatter. So the handler here replaces both (``LOG_INSTALL_ROOT_HANDLER``), and no line is
    text.
    """
    global _json_handler  # noqa: PLW0603 - the log belongs to the process, as Scrapy's does
    if _json_handler:
        logging.root.removeHandler(_json_handler)
        _json_handler.close()
    settings.set("LOG_INSTALL_ROOT_HANDLER", False, priority="cmdline")
    _json_handler = _make_json_handler(settings)
    logging.root.setLevel(logging.NOTSET)
    logging.root.addHandler(_json_handler)


def _make_json_handler(settings: BaseSettings) -> logging.Handler:
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


#: How INFO lines begin, by logger, that say nothing of a run. `httperror` is here because this
#: package logs why a source failed.
UNNEEDED: Final = {
    "scrapy.addons": ("Enabled addons",),
    "scrapy.core.engine": ("Spider opened", "Closing spider", "Spider closed"),
    "scrapy.crawler": ("Overridden settings",),
    "scrapy.middleware": ("Enabled ",),
    "scrapy.spidermiddlewares.httperror": ("Ignoring response",),
    "scrapy.utils.log": ("Scrapy ", "Versions"),
}


def quiet_scrapy() -> None:
    """Log the INFO lines of Scrapy that nobody needs as DEBUG lines, in this process.

    Filters do it, because Scrapy resets the levels of loggers when it sets up its log.
    """
    for name, beginnings in UNNEEDED.items():
        logging.getLogger(name).addFilter(partial(_demote, beginnings))


def _demote(beginnings: tuple[str, ...], record: logging.LogRecord) -> bool:
    """Turn an INFO line with one of these beginnings into a DEBUG line.

    The level of the handler then decides whether it is written.
    """
    if record.levelno == logging.INFO and str(record.msg).startswith(beginnings):
        record.levelno = logging.DEBUG
        record.levelname = logging.getLevelName(logging.DEBUG)
    return True
