"""The summary of a run, from Scrapy's stats: by source, or by request if there are no sources."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.wording import and_more

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Sites whose Comment lines are shown; the others are counted.
MOST_SITES: Final = 20
_DENIED: Final = "walsh/sources/denied/"
_GATES: Final = ("blocklist", "robots", "scope", "publicweb")


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
    def none_was_read(self) -> bool:
        """True if sources failed, and none was fetched or unchanged: `scrapy crawl` exits with 1.

        What was denied, deferred or not due has not failed, but it is no success either.
        """
        return self.failed > 0 and self.fetched + self.unchanged == 0

    def lines(self) -> list[str]:
        """Return the summary, a line for each outcome that any source had."""
        rows = (
            ("fetched", self.fetched, ""),
            ("unchanged", self.unchanged, "304 Not Modified, or an llms.txt that was read before"),
            ("denied", sum(self.denied.values()), _by_gate(self.denied)),
            ("deferred", self.deferred, _first("the first until", self.deferred_until)),
            ("failed", self.failed, "the reasons are in the log above"),
            ("gone", self.gone, "410: not visited again until `scrapy sources resume URL`"),
            ("not reached", max(self.due - self.done, 0), "still due: the run ended before"),
            ("not due", self.not_due, _first("the next one at", self.next_due)),
            ("stopped", self.stopped, "gone (410) on an earlier visit"),
            ("new entries", self.new_entries, f"{self.known_entries} known before"),
        )
        return _table(rows, always=("fetched", "new entries")) + self._said()

    def _said(self) -> list[str]:
        """Return what robots.txt files say to the operator, of the first sites that say it."""
        lines = [
            f"{origin}/robots.txt says: {comment}"
            for origin, comments in islice(self.comments.items(), MOST_SITES)
            for comment in comments
        ]
        left = len(self.comments) - MOST_SITES
        return [*lines, f"{and_more(left)} with comments in robots.txt"] if left > 0 else lines


def summary_of(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary as a JSON object: the counts of sources, or of requests without any."""
    if is_by_source(stats):
        return asdict(SourceCounts.of(stats))
    return _request_counts(stats) | {"denied": _denied_requests(stats)}


def request_lines(stats: Mapping[str, Any]) -> list[str]:
    """Return the summary of a run without declared sources, a line for each outcome."""
    counts, denied = _request_counts(stats), _denied_requests(stats)
    rows = (
        ("responses", counts["responses"], "robots.txt included"),
        ("denied", sum(denied.values()), _by_gate(denied)),
        ("undeclared", counts["undeclared"], "not requested (R6)"),
        ("deferred", counts["deferred"], "their hosts may not be asked within WALSH_MAX_WAIT"),
        ("retried", counts["retried"], "after 429 or 503"),
    )
    return _table(rows, always=("responses",))


def _request_counts(stats: Mapping[str, Any]) -> dict[str, int]:
    return {
        "responses": stats.get("response_received_count", 0),
        "undeclared": stats.get("walsh/scope/dropped", 0),
        "deferred": stats.get("walsh/requests/deferred", 0),
        "retried": stats.get("walsh/backoff/retried", 0),
    }


def _denied_requests(stats: Mapping[str, Any]) -> dict[str, int]:
    return {gate: stats.get(f"walsh/{gate}/denied", 0) for gate in _GATES}


def _table(rows: Iterable[tuple[str, int, str]], *, always: tuple[str, ...]) -> list[str]:
    """Return a line for each row with a count; a remark is only added to a count above 0."""
    return [
        f"{name:<12}{count:>7}{f'   {remark}' if remark and count else ''}"
        for name, count, remark in rows
        if count or name in always
    ]


def _by_gate(denied: Mapping[str, int]) -> str:
    return ", ".join(f"{count} by {gate}" for gate, count in denied.items() if count)


def _first(words: str, epoch_seconds: float | None) -> str:
    return "" if epoch_seconds is None else f"{words} {format_moment(epoch_seconds)}"
