"""The clocks of a request log, and its times that are not certain (decisions 35 and 37).

A row has two clocks: the time of day, and the machine's monotonic clock, which nobody sets. Their
difference is the same for all requests of a run, until its clock is set or its machine is
suspended. A row that alone differs was changed afterwards, and no clock was set. Rows are numbered
in the order in which they were written: a run whose rows lie before earlier ones began after the
clock was set back. All times are epoch seconds, all durations seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.checks import RECORD

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Seconds that two times of the request log may differ from the measured ones (decision 35).
TOLERANCE: Final = RECORD.tolerance
#: The doubt about a request whose times are not certain, and about the gap meanwhile.
CLOCK_SET: Final = "was recorded about when a clock was set"
CLOCK_SET_BACK: Final = "came next after a clock was set back"
#: Seconds that the row of another run may be late: it may have waited for the database.
_LATE: Final = 1.0
#: Longer times than these seconds leave the gap unknown.
_LONG: Final = 60.0


class Timed(NamedTuple):
    """The clocks of a row of `requests`."""

    run: int | None
    requested_at: float  #: when it was allowed to go out
    duration: float | None  #: seconds; None if its end is not known
    monotonic: float  #: at the end of its exchange
    connect_duration: float = 0.0  #: seconds from `requested_at` until it was sent

    @property
    def ended(self) -> float:
        """When its exchange was over."""
        return self.requested_at + self.connect_duration + (self.duration or 0.0)

    def agrees(self, other: Timed) -> bool:
        """Whether no clock was set between two requests of a run."""
        passed = self.monotonic - other.monotonic
        return abs(self.ended - other.ended - passed) <= TOLERANCE


class _Seen(NamedTuple):
    sent: Timed
    latest: float  #: `requested_at` of the requests that were recorded before


@dataclass(slots=True)
class _Run:
    last: Timed | None = None  #: the last request whose times another one confirms
    unconfirmed: _Seen | None = None


class SetClocks:
    """Where clocks were set.

    The requests come in the order of their numbers. They are read at the first use: only times that
    seem to be too early depend on them.
    """

    def __init__(self, sent: Iterable[Timed] = ()) -> None:
        self._sent = sent

    @property
    def set_back(self) -> int:
        """The number of times that a clock was set back, so that a gap is not known."""
        return self._found.set_back

    def are_certain(self, one: float, other: float) -> bool:
        """Return True if no clock was set between two moments."""
        since, until = min(one, other) - TOLERANCE, max(one, other) + TOLERANCE
        begun_by_then = bisect_right(self._spans, (until, math.inf))
        return not begun_by_then or self._spans[begun_by_then - 1][1] < since

    @cached_property
    def _found(self) -> _Finder:
        finder = _Finder()
        for sent in self._sent:
            finder.see(sent)
        return finder

    @cached_property
    def _spans(self) -> list[tuple[float, float]]:
        merged: list[tuple[float, float]] = []
        for since, until in sorted(self._found.spans):
            if merged and since <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(until, merged[-1][1])
            else:
                merged.append((since, until))
        return merged


class _Finder:
    def __init__(self) -> None:
        self.set_back = 0
        self.spans: list[tuple[float, float]] = []
        self._runs: dict[int, _Run] = {}
        self._latest = 0.0

    def see(self, sent: Timed) -> None:
        """Take note of one request. A request without an end has one clock."""
        if sent.run is None or sent.duration is None:
            return
        run, seen = self._runs.setdefault(sent.run, _Run()), _Seen(sent, self._latest)
        before = run.unconfirmed
        if run.last is not None and sent.agrees(run.last):
            self._confirm(run, seen)
        elif before is not None and sent.agrees(before.sent):
            if run.last is None:
                self.set_back += before.sent.requested_at < before.latest - _LONG
            else:
                self._set(run.last, before.sent)
            self._confirm(run, before, seen)
        else:
            run.unconfirmed = seen

    def _confirm(self, run: _Run, *found: _Seen) -> None:
        for sent, latest in found:
            if sent.requested_at < latest - _LATE:
                self.spans.append((sent.requested_at, latest))
            self._latest = max(self._latest, sent.requested_at)
            run.last, run.unconfirmed = sent, None

    def _set(self, last: Timed, first: Timed) -> None:
        """Note that a clock was set between two requests of a run."""
        self.set_back += first.ended - last.ended < first.monotonic - last.monotonic
        self.spans.append((min(last.ended, first.requested_at), max(last.ended, first.ended)))
