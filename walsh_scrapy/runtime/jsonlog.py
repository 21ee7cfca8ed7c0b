"""The log as JSON (``WALSH_LOG_FORMAT``): one object a line, for programs that collect logs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.utils.log import get_scrapy_root_handler

from walsh_scrapy.runtime.safelog import SafeFormatter

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_installed: logging.Handler | None = None


def log_handler() -> logging.Handler | None:
    """Return the handler that writes the log of this process: ours, or Scrapy's, if any."""
    return get_scrapy_root_handler() or _installed


def install_json_log(settings: BaseSettings) -> None:
    """Write the log as JSON, where and from which level on Scrapy's settings say.

    Scrapy makes its handler at the start, and once more when a crawl begins, and takes no
    formatter. So this one stands in its place (``LOG_INSTALL_ROOT_HANDLER``), and no line is text.
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


class JsonFormatter(SafeFormatter):
    """Formats a record as one JSON object in ASCII, without a line break.

    `time` is RFC 3339 in UTC, `level` the name of the level, `logger` the name of the logger.
    `message`, and `exception` with its traceback if there is one, are as safe and as bounded as in
    a log of text. What else callers attach to a record is left out: Scrapy attaches its spiders.
    """

    def __init__(self) -> None:
        super().__init__(_MessageFormatter())
        self._exception = SafeFormatter(_ExceptionFormatter())

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
            fields["exception"] = self._exception.format(record)
        return json.dumps(fields)


class _MessageFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage()


class _ExceptionFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""
