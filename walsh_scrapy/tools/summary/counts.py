"""What a run did, from Scrapy's stats: by source, or by request if there are no sources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.runtime.gates import gate_names

if TYPE_CHECKING:
    from collections.abc import Mapping

_DENIED: Final = "walsh/sources/denied/"
_STAT: Final = re.compile(r"walsh/(?!sources/)(\w+)/denied")


def is_by_source(stats: Mapping[str, Any]) -> bool:
    """Return True if the spider of a run visits declared sources."""
    return "walsh/sources/due" in stats


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """How many sources had which outcome, and how many entries came of them.

    ``deferred_until`` and ``next_due`` are in epoch seconds.
    """

    fetched: int
    unchanged: int
    denied: Mapping[str, int]  #: by gate
    deferred: int
    deferred_until: float | None
    failed: int
    gone: int
    stopped: int  #: gone (410) on an earlier visit
    due: int
    not_due: int
    next_due: float | None
    new_entries: int
    known_entries: int
    comments: Mapping[str, tuple[str, ...]]  #: the Comment lines of robots.txt, by origin

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> SourceCounts:
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
            stopped=stats.get("walsh/sources/resting", 0),
            due=stats.get("walsh/sources/due", 0),
            not_due=stats.get("walsh/sources/not_due", 0),
            next_due=stats.get("walsh/sources/next_due"),
            new_entries=stats.get("walsh/entries/new", 0),
            known_entries=stats.get("walsh/entries/known", 0),
            comments=stats.get("walsh/robots/comments", {}),
        )

    @property
    def done(self) -> int:
        """How many sources had an outcome in this run."""
        ended = self.fetched + self.unchanged + self.deferred + self.failed + self.gone
        return ended + sum(self.denied.values())

    @property
    def not_reached(self) -> int:
        """How many sources are still due because the run ended before."""
        return max(self.due - self.done, 0)

    @property
    def none_was_read(self) -> bool:
        """True if sources failed, and none was fetched or unchanged: `scrapy crawl` exits with 1.

        What was denied, deferred or not due has not failed, but it is no success either.
        """
        return self.failed > 0 and self.fetched + self.unchanged == 0


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """What a run without declared sources did."""

    responses: int
    denied: Mapping[str, int]  #: by gate
    undeclared: int
    deferred: int
    retried: int

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> RequestCounts:
        """Read the stats of a run; a project's own gates are in them as ours are."""
        denying = gate_names(found[1] for found in map(_STAT.fullmatch, stats) if found)
        return cls(
            responses=stats.get("response_received_count", 0),
            denied={gate: stats.get(f"walsh/{gate}/denied", 0) for gate in denying},
            undeclared=stats.get("walsh/scope/dropped", 0),
            deferred=stats.get("walsh/requests/deferred", 0),
            retried=stats.get("walsh/backoff/retried", 0),
        )
