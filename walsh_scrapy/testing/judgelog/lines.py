"""What a line of a log says of a request, and when that began and ended.

A request is judged by when it began. Apache writes that; nginx and lighttpd write when it ended,
which says when it began only with its duration.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final, NamedTuple

from walsh_scrapy.testing.tallies import TOLERANCE

#: A time in Common Log Format.
STAMP: Final = rb"\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}"
_HAS_SECONDS: Final = re.compile(rb"[\d-]+\D\d\d(?::\d\d:\d\d|\d{4})").match
_AUTHORITY: Final = re.compile(rb"https?://[^/?]*").match
#: Seconds by which a request may have begun before its end, where a log has the end only. It is
#: the default limit of both servers for each step of an exchange.
LONGEST_REQUEST: Final = 60
#: Seconds within which a pause counts as kept, where a log has fractions of a second.
FINE: Final = TOLERANCE
#: The User-Agent of a request without one, and of each request in a log that has none at all.
NAMELESS: Final = b"-"
UNKNOWN: Final = b""


class Line(NamedTuple):
    """What a line says of a request; times are in epoch seconds, durations in seconds."""

    moment: float  #: when it began, or at the latest: it was before ``moment`` and ``blur``
    target: bytes
    status: bytes
    agent: bytes
    blur: float = 1
    slack: float = 0  #: how much earlier than ``moment`` it may have begun
    duration: float = 0  #: until its end, at least; 0 if it is not known
    address: bytes = b""  #: empty if the log does not say it


def line_of(
    moment: float,
    took: float | None,
    blur: float,
    fields: tuple[bytes, bytes, bytes, bytes],
    *,
    is_end: bool | None,
) -> Line:
    """Return a line by the moment at which its request began or ended, and what it took, if known.

    ``is_end`` is None if the moment may be either: the request began earlier by what it took, or
    else by up to `LONGEST_REQUEST`. Fields are target, status, User-Agent and address.
    """
    target, status, agent, address = fields
    if authority := _AUTHORITY(target):  # so a client asks that takes the server for its proxy
        path = target[authority.end() :]
        target = path if path.startswith(b"/") else b"/" + path
    slack = LONGEST_REQUEST if took is None else took
    if is_end is False:
        return Line(moment, target, status, agent, blur, 0, took or 0, address)
    if is_end is None or took is None:
        return Line(moment, target, status, agent, blur, slack, 0, address)
    return Line(moment - took, target, status, agent, blur, 0, took, address)


def second_of(stamp: bytes) -> int | None:
    """Return the epoch seconds of a time such as `22/Nov/2026:10:00:01 +0000`; None if wrong."""
    midnight = _midnight(stamp[:11], stamp[21:])
    if midnight is None:
        return None
    return midnight + int(stamp[12:14]) * 3600 + int(stamp[15:17]) * 60 + int(stamp[18:20])


@lru_cache(maxsize=256)
def _midnight(date: bytes, zone: bytes) -> int | None:
    try:
        day = datetime.strptime(date.decode("ascii"), "%d/%b/%Y").replace(tzinfo=UTC)
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
        moved = timezone(-offset if zone[:1] == b"-" else offset)
        return int(day.replace(tzinfo=moved).timestamp())
    except (ValueError, OverflowError):  # 31 February, or 99 hours
        return None


def moment_of(written: bytes) -> float | None:
    """Return the epoch seconds of a time in RFC 3339 or ISO 8601.

    Return None if it has no zone, or no seconds: requests of one minute would have no pauses.
    """
    if not _HAS_SECONDS(written):
        return None
    try:
        moment = datetime.fromisoformat(written.decode("ascii"))
    except ValueError:
        return None
    return None if moment.tzinfo is None else whole(moment.timestamp())


def whole(seconds: float) -> float:
    """Return a number of seconds as an integer if it is one."""
    return int(seconds) if seconds == math.floor(seconds) else seconds
