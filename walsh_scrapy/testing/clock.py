"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta
from typing import Final

#: Where a fake clock starts: 2026-01-01 00:00:00 UTC.
EPOCH: Final = 1_767_225_600.0


class FakeClock:
    """Epoch seconds as `now()`, the same as an aware datetime; pass `clock.now` as the clock."""

    def __init__(self, start: float | datetime = EPOCH) -> None:
        self._now = start.timestamp() if isinstance(start, datetime) else start

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._now

    def datetime(self) -> datetime:
        """Return the same moment as an aware datetime in UTC."""
        return datetime.fromtimestamp(self._now, UTC)

    def advance(self, by: float | timedelta) -> float:
        """Move forward by seconds or a timedelta and return the new time."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds} s")
        self._now += seconds
        return self._now
