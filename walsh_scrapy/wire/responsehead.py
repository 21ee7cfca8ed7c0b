"""The head of a response, bounded, and without the lines that no parser takes (decision 34)."""

from __future__ import annotations

import re
from typing import Final

from scrapy.exceptions import DownloadFailedError

#: Most bytes of all heads of one response, the informational ones included.
MOST_BYTES: Final = 128 * 1024
#: Most lines of one head.
MOST_LINES: Final = 500

_END: Final = re.compile(rb"\r?\n\r?\n")
#: A header field as h11 takes it, or the continuation of one.
_FIELD: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\r]*|[ \t][^\x00\r]*")


class HeadTooLarge(DownloadFailedError):
    """The head of a response exceeds a limit; the message names it."""


class HeadReader:
    """Collects the bytes of a head until it is complete; one for each response.

    Some servers send lines without a colon or with a space in the name. Browsers skip such lines,
    and so does this: the rest of the head is still read.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._read = 0  # bytes of earlier heads of this response

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Return a complete head and the bytes after it; None if more bytes are needed.

        Raises HeadTooLarge.
        """
        # The end may begin up to three bytes before the new bytes.
        start = max(0, len(self._data) - 3)
        self._data += data
        end = _END.search(self._data, start)
        size = self._read + (end.end() if end else len(self._data))
        if size > MOST_BYTES:
            raise HeadTooLarge(f"the head of the response is longer than {MOST_BYTES // 1024} KiB")
        if end is None:
            return None
        head, rest = bytes(self._data[: end.start()]), bytes(self._data[end.end() :])
        self._read, self._data = size, bytearray()
        return _readable(head), rest


def _readable(head: bytes) -> bytes:
    """Return a head without the lines that are no fields. Raises HeadTooLarge."""
    status, *lines = [line.removesuffix(b"\r") for line in head.split(b"\n")]
    if len(lines) > MOST_LINES:
        raise HeadTooLarge(f"the head of the response has more than {MOST_LINES} lines")
    fields: list[bytes] = []
    for line in lines:
        if _FIELD.fullmatch(line) and (fields or line[:1] not in b" \t"):
            fields.append(line)
    return b"\r\n".join((status, *fields, b"", b""))
