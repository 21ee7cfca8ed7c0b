"""Points in time as text: RFC 3339 for machines, a short form in UTC for operators."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from walsh_scrapy.policy.durations import parse_typed_duration

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}
_TIME: Final = re.compile(
    rf"{_DATE.pattern}[Tt ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)


def parse_since(text: str, now: float) -> float:
    """Return the epoch seconds of a day (its midnight in UTC), a time, or a duration before `now`.

    `today`, `yesterday`, `2026-05-23`; `2026-05-23T06:00:00Z` with any offset (RFC 3339); `1d`,
    `12h`, `P7D` (`parse_typed_duration`). Raises ValueError, with a message of one sentence, for
    everything else.
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
    """Format a time as RFC 3339, in UTC and whole seconds; None for None and after the year 9999.

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
    """Format a time for operators, in UTC and whole seconds.

    >>> format_moment(1779516000.5)
    '2026-05-23 06:00:00 UTC'
    """
    try:
        return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "a time after the year 9999"
