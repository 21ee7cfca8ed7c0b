"""Dates of feeds as RFC 3339 in UTC; an impossible date is None.

ISO 8601 is read here and not by feedparser, which turns month 13 into January, completes a date
from the clock and shifts it by the time zone of the machine.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from time import struct_time
from typing import Final

# As feeds write it: also `2026-05-23 10:00:00 +0200`, `... UTC`, a year, or a year and a month.
_ISO: Final = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:(?:[Tt]|\s+)(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?"
    r"\s*(?:[Zz]|UTC|GMT|([+-])(\d\d)(?::?(\d\d))?)?)?)?)?",
    re.ASCII,
)
_COMPACT: Final = re.compile(r"\d{8}(?:T[\dZ+:.-]+)?", re.ASCII)
# `Wed, 03 Jan 2018 ...` and `3 Jan 2018 ...`: feedparser reads these without the clock.
_SPELLED: Final = re.compile(r"(?!T\d)[^\W\d_]|\d{1,2}[\s-]+[^\W\d_]")
# `Jan -1 00:00`: feedparser reads the year 1999.
_BEFORE_CHRIST: Final = re.compile(r"[^\W\d_]\s+-\d+\s+\d{1,2}:")
# Spelled dates in languages that feedparser does not know; the zone is GMT or an offset.
_FOREIGN: Final = re.compile(
    r"(?:[^\W\d_]+\.?(?:,\s*|\s+))?(\d{1,2})\.?[\s-]+([^\W\d_]{3,9})\.?[\s-]+(\d{4})"
    r"\s+(\d{1,2}):(\d\d)(?::(\d\d))?(?:\s+(?:GMT|UTC|Z|([+-])(\d\d):?(\d\d)))?"
)
_MONTHS: Final = {
    name: month
    for month, names in enumerate(
        (
            "jan ene gen janv",
            "fev feb fév févr",
            "mar mrt mär märz mars",
            "abr apr avr",
            "mai may mag mei",
            "jun giu juin",
            "jul lug juil juillet",
            "ago aug aoû août",
            "set sep sept",
            "out oct okt ott",
            "nov",
            "dez dic déc dec",
        ),
        start=1,
    )
    for name in names.split()
}
_FIRST_YEAR: Final = 1000  # .NET programs write year 1 for "no date"


def date_in_utc(text: object, parsed: struct_time | None = None) -> str | None:
    """Return a date as `2026-05-23T00:00:00Z`; None if it is absent or impossible.

    `parsed` is feedparser's reading of the same text, in UTC; it counts only if the month is
    written as a name. A date without a zone is in UTC, a date without a time is midnight.
    """
    if not isinstance(text, str) or len(text := text.strip()) > 100:
        return None
    try:
        moment = _moment(text, parsed)
    except (ValueError, OverflowError):
        return None
    if moment is None or moment.year < _FIRST_YEAR:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}Z"


def _moment(text: str, parsed: struct_time | None) -> datetime | None:
    if iso := _ISO.fullmatch(text):
        return _from_iso(iso)
    if _COMPACT.fullmatch(text):
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment
    if parsed is not None and _SPELLED.match(text) and not _BEFORE_CHRIST.search(text):
        return datetime(*parsed[:6], tzinfo=UTC)
    foreign = _FOREIGN.fullmatch(text)
    return _from_foreign(foreign) if foreign else None


def _from_iso(iso: re.Match[str]) -> datetime:
    year, month, day, *rest = iso.groups()
    return _in_utc(int(year), int(month or 1), int(day or 1), *rest)


def _from_foreign(foreign: re.Match[str]) -> datetime | None:
    day, name, year, *rest = foreign.groups()
    month = _MONTHS.get(name.lower()) or _MONTHS.get(name.lower()[:3])
    return _in_utc(int(year), month, int(day), *rest) if month else None


def _in_utc(year: int, month: int, day: int, *rest: str | None) -> datetime:
    hour, minute, second = (int(number or 0) for number in rest[:3])
    sign, hours, minutes = rest[3:]
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    zone = timezone(-offset if sign == "-" else offset)
    return datetime(year, month, day, hour, minute, second, tzinfo=zone).astimezone(UTC)
