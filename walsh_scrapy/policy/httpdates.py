"""Dates in HTTP headers: all three forms, in any locale (RFC 9110 5.6.7)."""

import re
from datetime import UTC, datetime
from typing import Final

# strptime and the calendar module would use the names of the machine's locale.
_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec"
_MONTH: Final = rf"(?P<month>{_MONTHS.replace(' ', '|')})"
_DAY: Final = r"(?P<day>[0-9]{1,2})"
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_WEEKDAY: Final = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}"
_HTTP_DATES: Final = (
    # IMF-fixdate, and the obsolete form of RFC 850 with its two-digit year
    rf"{_WEEKDAY}, {_DAY}[ -]{_MONTH}[ -](?P<year>[0-9]{{4}}|[0-9]{{2}}) {_TIME} GMT",
    # asctime: it has no time zone, and is in UTC
    rf"{_WEEKDAY} {_MONTH} +{_DAY} {_TIME} (?P<year>[0-9]{{4}})",
)


def parse_http_date(text: str, now: datetime) -> datetime | None:
    """Return the date in a header as an aware datetime; None if it has none of the three forms.

    The century of a two-digit year depends on `now`, an aware datetime. Never raises.

    >>> parse_http_date("Sat, 23 May 2026 06:00:00 GMT", datetime(2026, 1, 1, tzinfo=UTC))
    datetime.datetime(2026, 5, 23, 6, 0, tzinfo=datetime.timezone.utc)
    """
    matches = (
        re.fullmatch(form, text.strip(" \t"), re.IGNORECASE | re.ASCII) for form in _HTTP_DATES
    )
    found = next((match for match in matches if match), None)
    if found is None:
        return None
    month = _MONTHS.split().index(found["month"].lower()) + 1
    day, hour, minute, second = (int(found[name]) for name in ("day", "hour", "minute", "second"))
    if second == 60:  # a leap second, which datetime does not know
        second = 59
    moment = (month, day, hour, minute, second)
    year = int(found["year"])
    if len(found["year"]) == 2:
        year = _full_year(year, moment, now.astimezone(UTC))
    try:
        return datetime(year, *moment, tzinfo=UTC)
    except ValueError:
        return None


def _full_year(digits: int, moment: tuple[int, ...], now: datetime) -> int:
    """Return the year with its century, at most 50 years in the future (RFC 9110 5.6.7)."""
    latest = (now.year + 50, now.month, now.day, now.hour, now.minute, now.second)
    year = now.year // 100 * 100 + 100 + digits
    while (year, *moment) > latest:
        year -= 100
    return year
