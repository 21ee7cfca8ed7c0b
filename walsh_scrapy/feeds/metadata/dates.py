"""Dates of feeds as RFC 3339 in UTC; an impossible or ambiguous date is None.

A wrong date is worse than none. The readers of feedparser guess: they overlook PM, take `-700` for
700 hours, turn month 13 into January, and complete a date from the clock. Libraries that read any
text guess too. This module reads only the forms that feeds have, each with one meaning:

- ISO 8601 and RFC 3339, even with a space, without seconds or without a zone; `2020/1/10`;
- RFC 822 and its successors, asctime, and similar ones: names in full, `10th`, the month
  first, no weekday, AM and PM, a comment in parentheses. Months have English names.

`1/2/2020` is the first or the second month, so numbers are a date only if the year comes first.

A zone is UTC, an offset of four digits of at most 14 hours, with or without the name of the zone,
hours from UTC or GMT (`GMT+7` is `+0700`), one of `_ABBREVIATIONS`, or a place of the tz database.
A date with any other zone is None: `IST` may be India, Ireland or Israel.
"""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

_MONTHS: Final = {
    name: month
    for month, names in enumerate(
        (
            "jan january",
            "feb february",
            "mar march",
            "apr april",
            "may",
            "jun june",
            "jul july",
            "aug august",
            "sep sept september",
            "oct october",
            "nov november",
            "dec december",
        ),
        start=1,
    )
    for name in names.split()
}
#: Hours from UTC, by the names of zones that have no other meaning, or another one that feeds never
#: use. `AST`, `BST` and `IST` have several.
_ABBREVIATIONS: Final = {
    name: hours
    for hours, names in (
        (-10, "HST"),
        (-9, "AKST"),
        (-8, "AKDT PST"),
        (-7, "PDT MST"),
        (-6, "MDT CST"),
        (-5, "CDT EST"),
        (-4, "EDT"),
        (-3, "ART BRT"),
        (0, "Z UT UTC GMT WET"),
        (1, "WEST CET WAT"),
        (2, "CEST EET CAT SAST"),
        (3, "EEST EAT MSK"),
        (5, "PKT"),
        (5.75, "NPT"),
        (7, "ICT WIB"),
        (8, "AWST HKT SGT WITA"),
        (9, "JST KST WIT"),
        (9.5, "ACST"),
        (10, "AEST"),
        (10.5, "ACDT"),
        (11, "AEDT"),
        (12, "NZST"),
        (13, "NZDT"),
    )
    for name in names.split()
}
_MAX_OFFSET: Final = timedelta(hours=14)
_MIN_YEAR: Final = 1000  # .NET programs write year 1 for "no date"

_WEEKDAY: Final = r"(?:[^\W\d_]+(?:\.?,\s*|\.?\s+))?"  # in any language; wrong ones are common
_DAY: Final = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_MONTH: Final = r"(?P<month>[^\W\d_]{3,10})"
_YEAR: Final = r"(?P<year>[0-9]{4}|[0-9]{2})"
_LONG_YEAR: Final = r"(?P<year>[0-9]{4})"
_DELIMITER: Final = r"(?:\.?\s+|\.?,\s*|[-/.])"
_TIME: Final = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,][0-9]+)?)?"
    r"(?:\s*(?P<half>[ap])\.?m\b\.?)?"
)
# Some programs write a zone twice: `+0000 UTC`, `+0100 CET`, `-0300 -03`, `GMT +0000`, `Z UTC`. The
# offset is used, because most names have several meanings.
_NAME: Final = "(?:z|[a-z]{2,5})"
_OFFSET: Final = (
    rf"(?:(?:(?P<origin>GMT|UTC?)\s*|{_NAME}\s+)?"
    r"(?P<sign>[+-])(?P<hours>(?(origin)[0-9]{1,2}|[0-9]{2}))(?::?(?P<minutes>[0-9]{2}))?"
    rf"(?:\s+(?:{_NAME}|(?P=sign)(?P=hours)(?::?(?P=minutes))?)(?:\s+m=[+-][0-9.]+)?)?)"
)
_UTC: Final = "(?:z|utc?|gmt)"
_ZONE: Final = rf"(?:{_OFFSET}|(?P<zone>[a-z]+(?:/[a-z_-]+)*)|(?P<utc>{_UTC})\s+{_UTC})"
_REST: Final = rf"(?:(?:t|[\s,]+(?:-\s+|at\s+)?){_TIME})?(?:\s*\(?{_ZONE}\)?)?(?:\s*\([^()]*\))?"
_FORMS: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_WEEKDAY}{_LONG_YEAR}(?P<by>[-/.])(?P<month>[0-9]{{1,2}})(?P=by)(?P<day>[0-9]{{1,2}}){_REST}",
        rf"{_WEEKDAY}{_DAY}{_DELIMITER}{_MONTH}{_DELIMITER}{_YEAR}{_REST}",
        rf"{_WEEKDAY}{_MONTH}{_DELIMITER}{_DAY}{_DELIMITER}{_YEAR}{_REST}",
        rf"{_WEEKDAY}{_MONTH}\s+{_DAY}\s+{_TIME}(?:\s+{_ZONE})?\s+{_LONG_YEAR}",
        rf"{_LONG_YEAR}{_DELIMITER}{_MONTH}{_DELIMITER}{_DAY}{_REST}",
        rf"{_MONTH}\.?\s+{_LONG_YEAR}",
        rf"{_LONG_YEAR}(?:-(?P<month>[0-9]{{1,2}}))?",
    )
)
_COMPACT: Final = re.compile(r"[0-9]{8}(?:T[0-9:.]+(?:Z|[+-][0-9]{2}(?::?[0-5][0-9])?)?)?")


def date_in_utc(text: object) -> str | None:
    """Return a date as `2026-05-23T00:00:00Z`; None if it is absent, impossible or ambiguous.

    A date without a zone is in UTC, a date without a time is midnight.
    """
    if not isinstance(text, str) or len(text := text.strip()) > 100:
        return None
    try:
        moment = _parse_moment(text)
    except (ValueError, OverflowError):
        return None
    if moment is None or moment.year < _MIN_YEAR:
        return None
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def _parse_moment(text: str) -> datetime | None:
    if _COMPACT.fullmatch(text):
        return _to_utc(datetime.fromisoformat(text))
    for form in _FORMS:
        if match := form.fullmatch(text):
            parts = match.groupdict()
            if (day := _day(parts)) and (zone := _zone(parts)):
                return _to_utc(datetime(day.year, day.month, day.day, *_time(parts), tzinfo=zone))
    return None


def _day(parts: dict[str, str | None]) -> date | None:
    name = parts["month"] or "1"
    month = int(name) if name.isdigit() else _MONTHS.get(name.lower())
    day = int(parts.get("day") or 1)
    return date(_full_year(parts["year"] or ""), month, day) if month else None


def _full_year(digits: str) -> int:
    """Return a year with its century (RFC 5322 4.3)."""
    year = int(digits)
    return year if len(digits) > 2 else year + (2000 if year < 50 else 1900)


def _time(parts: dict[str, str | None]) -> tuple[int, int, int]:
    """Return hour, minute and second. Raises ValueError for an hour that has no AM or PM."""
    hour, minute, second = (int(parts.get(name) or 0) for name in ("hour", "minute", "second"))
    if half := parts.get("half"):
        if not 1 <= hour <= 12:
            raise ValueError(hour)
        hour = hour % 12 + (12 if half in "pP" else 0)
    return hour, minute, 59 if second == 60 else second  # datetime knows no leap second


def _zone(parts: dict[str, str | None]) -> tzinfo | None:
    """Return the zone of a date; UTC if the date has no zone, None if the zone is unknown."""
    if name := parts.get("zone") or parts.get("utc"):
        hours = _ABBREVIATIONS.get(name.upper())
        if hours is not None:
            return timezone(timedelta(hours=hours))
        return ZoneInfo(name) if name in _place_names() else None
    if not (sign := parts.get("sign")):
        return UTC
    # `-05` is an offset only in ISO 8601, and after the name of the zone from which it counts.
    is_short = parts["minutes"] is None
    if is_short and not parts["origin"] and not (parts.get("by") and parts["hour"]):
        return None
    minutes = int(parts["minutes"] or 0)
    offset = timedelta(hours=int(parts["hours"] or 0), minutes=minutes)
    return timezone(-offset if sign == "-" else offset) if minutes < 60 else None


@cache
def _place_names() -> frozenset[str]:
    """Return the names of the tz database that name a place, such as `Europe/Brussels`."""
    names = files("tzdata").joinpath("zones").read_text("ascii").split()
    return frozenset(name for name in names if "/" in name and not name.startswith("Etc/"))


def _to_utc(moment: datetime) -> datetime | None:
    """Return a moment in UTC; None if its offset is too large or its local time is ambiguous.

    When summer time begins, some local times never occur; when it ends, some occur twice.
    """
    if moment.tzinfo is None:
        return moment
    offset = moment.utcoffset() or timedelta()
    if abs(offset) > _MAX_OFFSET or offset != moment.replace(fold=1).utcoffset():
        return None
    return moment.astimezone(UTC)
