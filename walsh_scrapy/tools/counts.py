"""What a run came to, read from Scrapy's stats under ``walsh/``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from walsh_scrapy.policy.timestamps import format_moment

if TYPE_CHECKING:
    from collections.abc import Mapping

_DENIED = "walsh/sources/denied/"


@dataclass(frozen=True, slots=True)
class Counts:
    """Sources by outcome, and entries; ``next_due`` is in epoch seconds."""

    fetched: int
    unchanged: int
    denied: Mapping[str, int]
    deferred: int
    deferred_until: float | None
    failed: int
    gone: int
    resting: int
    due: int
    not_due: int
    next_due: float | None
    new_entries: int
    known_entries: int
    comments: Mapping[str, tuple[str, ...]]  #: what robots.txt files tell us, by origin

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> Counts:
        """Read the stats of a run."""
        return cls(
            fetched=stats.get("walsh/sources/fetched", 0),
            unchanged=stats.get("walsh/sources/unchanged", 0),
            denied={
                name.removeprefix(_DENIED): count
                for name, count in sorted(stats.items())
                if name.startswith(_DENIED)
            },
            deferred=stats.get("walsh/sources/deferred", 0),
            deferred_until=stats.get("walsh/sources/deferred_until"),
            failed=stats.get("walsh/sources/failed", 0),
            gone=stats.get("walsh/sources/gone", 0),
            resting=stats.get("walsh/sources/resting", 0),
            due=stats.get("walsh/sources/due", 0),
            not_due=stats.get("walsh/sources/not_due", 0),
            next_due=stats.get("walsh/sources/next_due"),
            new_entries=stats.get("walsh/entries/new", 0),
            known_entries=stats.get("walsh/entries/known", 0),
            comments=stats.get("walsh/robots/comments", {}),
        )

    @property
    def done(self) -> int:
        """How many sources came to an end in this run."""
        ended = self.fetched + self.unchanged + self.deferred + self.failed + self.gone
        return ended + sum(self.denied.values())

    def lines(self) -> list[str]:
        """Return the summary of a run, a line an outcome; what did not happen is left out."""
        gates = ", ".join(f"{count} by {gate}" for gate, count in self.denied.items())
        rows = (
            ("fetched", self.fetched, ""),
            ("unchanged", self.unchanged, "304 Not Modified, or an llms.txt read before"),
            ("denied", sum(self.denied.values()), gates),
            ("deferred", self.deferred, _first("first one possible at", self.deferred_until)),
            ("failed", self.failed, "each with its reason above" if self.failed else ""),
            ("gone", self.gone, "410: they rest until `scrapy sources resume URL`"),
            ("not reached", max(self.due - self.done, 0), "the run ended before their turn"),
            ("not due", self.not_due, _first("next one at", self.next_due)),
            ("at rest", self.resting, "gone (410) on an earlier visit"),
            ("new entries", self.new_entries, f"{self.known_entries} known before"),
        )
        lines = [
            f"{name:<12}{count:>7}{'   ' + remark if remark and count else ''}"
            for name, count, remark in rows
            if count or name in ("fetched", "new entries")
        ]
        return lines + [
            f"{origin}/robots.txt says: {comment}"
            for origin, comments in self.comments.items()
            for comment in comments
        ]


def _first(words: str, epoch_seconds: float | None) -> str:
    return "" if epoch_seconds is None else f"{words} {format_moment(epoch_seconds)}"
