"""Points in time as operators and documents of ours write them: RFC 3339, UTC."""

import re
from datetime import UTC, datetime
from typing import Final

from walsh_scrapy.policy.durations import parse_duration

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME: Final = re.compile(
    rf"{_DATE.pattern}[Tt ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)


def parse_since(text: str, now: float) -> float:
    """Return the epoch seconds of a date (its midnight in UTC), a time, or a duration before `now`.

    `2026-05-23`, `2026-05-23T06:00:00Z` with any offset (RFC 3339), `P7D` (ISO-8601). Raises
    ValueError, one sentence, for everything else.
    """
    written = text.strip()
    try:
        if written.startswith("P"):
            return now - parse_duration(written).total_seconds()
        if _DATE.fullmatch(written):
            return datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp()
        if _TIME.fullmatch(written):
            return datetime.fromisoformat(written.upper()).timestamp()
    except (ValueError, OverflowError):
        pass  # a day or an hour that no calendar has
    raise ValueError(
        f"{text[:40]!r} is no date, RFC 3339 time or ISO-8601 duration; write for example "
        "2026-05-23, 2026-05-23T06:00:00Z or, for the last week, P7D"
    )


def rfc3339(epoch_seconds: float | None) -> str | None:
    """Write a time to the second, in UTC; None for none, or one beyond the calendar."""
    if epoch_seconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(int(epoch_seconds), UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat().replace("+00:00", "Z")
