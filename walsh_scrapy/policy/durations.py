"""Durations and moments as text (R3 `refresh`, R5 Retry-After, R8 `every` of a source).

Durations are ISO 8601 in documents, and also short forms such as `90min` in commands. Moments are
RFC 3339 for machines, and a short form in UTC for people. HTTP headers have dates in three forms
(RFC 9110 5.6.7), which are read in any locale.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

#: The maximum time until a source is due again, in seconds, whatever feed and server ask for and
#: however often visits failed. Only the operator's interval may be longer.
MAX_REVISIT_SECONDS: Final = 30 * 86_400.0
#: The maximum difference between the clocks of several machines, in seconds. A moment that is
#: further in the future comes from a wrong clock.
CLOCK_SKEW: Final = 3600.0

_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_DURATION: Final = re.compile(
    rf"P(?=.)(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_UNITS: Final = ("weeks", "days", "hours", "minutes", "seconds")
_TYPED: Final = re.compile(r"([0-9]{1,9})(w|d|h|min)", re.ASCII)
_TYPED_UNITS: Final = {"w": "weeks", "d": "days", "h": "hours", "min": "minutes"}


def parse_duration(text: str) -> timedelta:
    """Read an ISO-8601 duration in weeks, days, hours, minutes and seconds.

    Only the smallest part may have a decimal fraction, after a point or a comma. Raises ValueError,
    with a message of one sentence, for any other text: also for years and months, whose lengths
    vary, for signs, and for small letters.

    >>> parse_duration("P1DT12H30M")
    datetime.timedelta(days=1, seconds=45000)
    """
    match = _DURATION.fullmatch(text)
    shown = text if len(text) <= 40 else text[:40] + "…"
    if not match:
        raise ValueError(
            f"{shown!r} is not an ISO-8601 duration of weeks, days, hours, minutes and seconds; "
            "write for example PT6H or P1D"
        )
    parts = {unit: number for unit, number in zip(_UNITS, match.groups(), strict=True) if number}
    *larger, _ = parts.values()
    if any(not number.isdigit() for number in larger):
        raise ValueError(f"{shown!r} has a decimal fraction before its smallest part")
    try:
        return timedelta(**{unit: float(n.replace(",", ".")) for unit, n in parts.items()})
    except (OverflowError, ValueError):
        raise ValueError(f"{shown!r} is too long") from None


def format_duration(length: timedelta) -> str:
    """Return a duration of at least 0 as ISO 8601, in seconds; `parse_duration` reads it.

    >>> format_duration(timedelta(hours=6))
    'PT21600S'
    """
    fraction = f".{length.microseconds:06}".rstrip("0") if length.microseconds else ""
    return f"PT{length.days * 86_400 + length.seconds}{fraction}S"


def parse_typed_duration(text: str) -> timedelta:
    """Read a duration as an operator types it: `90min`, `12h`, `1d`, `2w`, or by ISO-8601.

    Raises ValueError, with a message of one sentence, as `parse_duration` does.

    >>> parse_typed_duration("1d")
    datetime.timedelta(days=1)
    """
    match = _TYPED.fullmatch(text)
    if match is None:
        return parse_duration(text)
    try:
        return timedelta(**{_TYPED_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None


_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}
_TIME: Final = re.compile(
    rf"{_DATE.pattern}[Tt ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)


def parse_since(text: str, now: float) -> float:
    """Return the epoch seconds of a moment in the past, as an operator types it.

    - A day, at midnight in UTC: `today`, `yesterday`, `2026-05-23`.
    - A moment of RFC 3339, with any offset: `2026-05-23T06:00:00Z`.
    - A duration before `now`, as `parse_typed_duration` reads it: `1d`, `12h`, `P7D`.

    Raises ValueError, with a message of one sentence, for any other text.
    """
    written = text.strip()
    try:
        if written.lower() in _DAYS_AGO:
            day = datetime.fromtimestamp(now, UTC) - timedelta(days=_DAYS_AGO[written.lower()])
            return day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        if _DATE.fullmatch(written):
            return datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp()
        if _TIME.fullmatch(written):
            return datetime.fromisoformat(written.upper()).timestamp()
        return now - parse_typed_duration(written).total_seconds()
    except (ValueError, OverflowError):
        pass  # for example the 31st of February, or 25 o'clock
    raise ValueError(
        f"{text[:40]!r} is not a day, RFC 3339 time or duration; write for example today, "
        "yesterday, 2026-05-23, 2026-05-23T06:00:00Z or, for the last week, 7d or P7D"
    )


def rfc3339(epoch_seconds: float | None) -> str | None:
    """Return a moment as RFC 3339, in UTC and whole seconds; None for None and after year 9999.

    >>> rfc3339(1779516000.5)
    '2026-05-23T06:00:00Z'
    """
    if epoch_seconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(int(epoch_seconds), UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat().replace("+00:00", "Z")


def format_moment(epoch_seconds: float) -> str:
    """Return a moment for people, in UTC and whole seconds.

    >>> format_moment(1779516000.5)
    '2026-05-23 06:00:00 UTC'
    """
    try:
        return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "a time after the year 9999"


# strptime and the calendar module would use the names of the machine's locale.
_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec"
_MONTH: Final = rf"(?P<month>{_MONTHS.replace(' ', '|')})"
_DAY: Final = r"(?P<day>[0-9]{1,2})"
_TIME_OF_DAY: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
#: A comma between the items of a list: the comma of a date is followed by its day and month.
LIST_COMMA: Final = re.compile(
    rf",(?![ \t]*[0-9]{{1,2}}[ -](?:{_MONTHS.replace(' ', '|')})[ -])", re.IGNORECASE | re.ASCII
)
_WEEKDAY: Final = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}"
_GMT: Final = r"(?:GMT|UTC?|[+-]0000)"  # Python's email.utils, for example, writes -0000
_HTTP_DATES: Final = (
    # IMF-fixdate, and the obsolete form of RFC 850 with its two-digit year
    rf"{_WEEKDAY}, {_DAY}[ -]{_MONTH}[ -](?P<year>[0-9]{{4}}|[0-9]{{2}}) {_TIME_OF_DAY} {_GMT}",
    # asctime, which is in UTC: it has no time zone, but the output of the program `date` has
    rf"{_WEEKDAY} {_MONTH} +{_DAY} {_TIME_OF_DAY} (?:{_GMT} )?(?P<year>[0-9]{{4}})",
)


def parse_http_date(text: str, now: datetime) -> datetime | None:
    """Return the date in a header as an aware datetime, or None if it has none of three forms.

    The time zone may be written as GMT, UTC, UT, +0000 or -0000. The century of a two-digit year
    depends on `now`, an aware datetime. Never raises.

    >>> parse_http_date("Sat, 23 May 2026 06:00:00 GMT", datetime(2026, 1, 1, tzinfo=UTC))
    datetime.datetime(2026, 5, 23, 6, 0, tzinfo=datetime.timezone.utc)
    """
    matches = (
        re.fullmatch(form, text.strip(" \t"), re.IGNORECASE | re.ASCII) for form in _HTTP_DATES
    )
    date = next((match for match in matches if match), None)
    if date is None:
        return None
    month = _MONTHS.split().index(date["month"].lower()) + 1
    day, hour, minute, second = (int(date[name]) for name in ("day", "hour", "minute", "second"))
    if second == 60:  # a leap second, which datetime cannot represent
        second = 59
    moment = (month, day, hour, minute, second)
    year = int(date["year"])
    if len(date["year"]) == 2:
        year = _full_year(year, moment, now.astimezone(UTC))
    try:
        return datetime(year, *moment, tzinfo=UTC)
    except ValueError:
        return None


def _full_year(digits: int, moment: tuple[int, ...], now: datetime) -> int:
    """Return a two-digit year with its century, at most 50 years ahead (RFC 9110 5.6.7)."""
    latest = (now.year + 50, now.month, now.day, now.hour, now.minute, now.second)
    year = now.year // 100 * 100 + 100 + digits
    while (year, *moment) > latest:
        year -= 100
    return year
