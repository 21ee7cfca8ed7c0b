"""Log lines that are safe for a terminal, whatever strangers' text is in them."""

from __future__ import annotations

import copy
import errno
import logging
import re
import sys
from collections.abc import Callable, Mapping
from typing import Final

from walsh_scrapy.policy.wording import cut, printable

#: Characters of one value in a log line; no line of our own needs as many.
LONGEST_VALUE: Final = 4_000
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BETWEEN_BREAKS: Final = re.compile(r"[^\n\t]+")


def protect_log(handler: logging.Handler, disk_is_full: Callable[[], None]) -> None:
    """Let the handler of the log write safe lines.

    ``disk_is_full`` is called, in whatever thread, for the first line that finds the disk full.
    """
    if not isinstance(handler.handleError, _Unwritten):
        if not isinstance(handler.formatter, SafeFormatter):
            handler.setFormatter(SafeFormatter(handler.formatter or logging.Formatter()))
        handler.handleError = _Unwritten(handler, disk_is_full)  # type: ignore[method-assign]


class _Unwritten:
    """What a handler does with a record that it cannot write.

    Python prints a traceback for each. If the disk is full, one line is enough.
    """

    def __init__(self, handler: logging.Handler, disk_is_full: Callable[[], None]) -> None:
        self._otherwise = handler.handleError
        self._disk_is_full = disk_is_full
        self._is_told = False

    def __call__(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not (isinstance(error, OSError) and error.errno in _FULL):
            self._otherwise(record)
        elif not self._is_told:
            self._is_told = True
            print(
                f"walsh-scrapy: the log cannot be written: {error.strerror}; the run ends, and "
                "what is due stays due",
                file=sys.stderr,
            )
            self._disk_is_full()


class SafeFormatter(logging.Formatter):
    """Formats a record as another formatter does, with strangers' text on one line and bounded.

    The values of a record are strangers' text; the message that they stand in is the code's own. If
    that has several lines, so may its values: Scrapy logs tables of settings. A traceback keeps its
    lines. Nothing else that a terminal obeys is left.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or the lines, of a record."""
        text = self._inner.format(record)
        if text.isprintable() and len(text) <= LONGEST_VALUE:
            return text
        if "\n" not in str(record.msg):
            record = copy.copy(record)
            record.args = _safe_args(record.args)
            text = self._inner.format(record)
        return _BETWEEN_BREAKS.sub(lambda found: printable(found[0]), text)


class _Shown:
    """A value whose text is safe."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return _safe(str(self._value))

    def __repr__(self) -> str:
        return _safe(repr(self._value))


def _safe_args(args: object) -> tuple[object, ...] | Mapping[str, object]:
    if isinstance(args, Mapping):
        return {name: _safe_value(value) for name, value in args.items()}
    return tuple(map(_safe_value, args)) if isinstance(args, tuple) else ()


def _safe_value(value: object) -> object:
    return value if isinstance(value, int | float | None) else _Shown(value)


def _safe(text: str) -> str:
    return cut(printable(text), LONGEST_VALUE)
