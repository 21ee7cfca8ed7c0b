"""Update hints of a feed: ttl, the syndication module, skipHours and skipDays (R8).

This reads the values only. `policy.freshness` decides when the feed is due (decision 20).
"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Final

_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_PERIODS: Final = frozenset({"hourly", "daily", "weekly", "monthly", "yearly"})
_DAYS: Final = frozenset(
    {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
)


def ttl(channel: Mapping[str, object]) -> float | None:
    """Return the minutes that a copy may be kept (RSS 2.0 `ttl`); None if absent or not above 0."""
    minutes = _number(channel.get("ttl"))
    return minutes if minutes and isfinite(minutes) else None


def update_period(channel: Mapping[str, object]) -> str | None:
    """Return `sy:updatePeriod`: hourly, daily, weekly, monthly or yearly; None if none of these."""
    period = str(channel.get("sy_updateperiod", "")).strip().lower()
    return period if period in _PERIODS else None


def update_frequency(channel: Mapping[str, object]) -> int | None:
    """Return `sy:updateFrequency`, the updates in one period; None if absent or below 1."""
    frequency = _number(channel.get("sy_updatefrequency"))
    return int(frequency) if frequency and frequency >= 1 else None


def skip_hours(channel: Mapping[str, object]) -> frozenset[int]:
    """Return the hours without updates, 0 to 23, UTC; RSS 0.91 writes midnight as 24."""
    hours = (_number(hour) for hour in _list(channel.get("hours")))
    return frozenset(int(hour) % 24 for hour in hours if hour is not None and hour <= 24)


def skip_days(channel: Mapping[str, object]) -> frozenset[str]:
    """Return the days of the week without updates, UTC, as English names."""
    days = (str(day).strip().capitalize() for day in _list(channel.get("days")))
    return frozenset(days) & _DAYS


def _number(text: object) -> float | None:
    number = text.strip() if isinstance(text, str) else ""
    return float(number) if _NUMBER.fullmatch(number) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
