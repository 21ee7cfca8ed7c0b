"""What a robots.txt asks of one group of bots, looked up for many requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from walsh_scrapy.policy.robots import Rules

#: Verdicts that are kept; a log has more paths than that only if somebody makes them up.
_MOST_VERDICTS: Final = 100_000
#: Bytes of a target whose verdict is kept.
_LONGEST_KEPT: Final = 1000


class Terms:
    """The rules of one group, with the verdicts and the pauses that were looked up already."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._denied: dict[bytes, bool] = {}
        self._minutes: dict[int, tuple[float, bool]] = {}

    def denies(self, target: bytes) -> bool:
        """Return True if the group may not ask for a target, as the log has it."""
        known = self._denied.get(target)
        if known is None:
            known = not self._rules.verdict(target.decode("utf-8", "replace")).allowed
            if len(self._denied) >= _MOST_VERDICTS:
                self._denied.clear()
            if len(target) <= _LONGEST_KEPT:
                self._denied[target] = known
        return known

    def why(self, target: bytes) -> str:
        """Return the line that denies a target."""
        verdict = self._rules.verdict(target.decode("utf-8", "replace"))
        return f"line {verdict.line} of robots.txt says {verdict.rule!r}"

    def at(self, second: int) -> tuple[float, bool]:
        """Return the pause asked for at an epoch second, and whether Visit-time is closed then."""
        minute = second // 60 % 1440
        known = self._minutes.get(minute)
        if known is None:
            moment = datetime.fromtimestamp(minute * 60, UTC)
            pause = max(self._rules.crawl_delay or 0.0, self._rules.interval(moment) or 0.0)
            known = self._minutes[minute] = (pause, self._rules.opens(moment) > moment)
        return known

    @property
    def pause(self) -> float:
        """Seconds: the Crawl-delay, or the Request-rate that is in force at midnight."""
        return self.at(0)[0]
