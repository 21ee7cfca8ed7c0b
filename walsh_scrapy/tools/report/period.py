"""What a report is about: one run, all since a moment, or all that is known of one host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.state.history import Span
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.state import State
    from walsh_scrapy.state.history import LoggedRequest
    from walsh_scrapy.state.runs import RunRecord

#: Runs that a report knows of.
MOST_RUNS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The part of the record that a report is about."""

    span: Span
    runs: Sequence[RunRecord]  #: the newest first
    words: str  #: the same for the page's heading
    host: str | None = None  #: the name under which the ledger paces it

    def includes(self, record: LoggedRequest) -> bool:
        """Return True if a request is a part of the report."""
        run, until = self.span.run, self.span.until
        is_in_time = record.sent_at >= self.span.since and (
            until is None or record.sent_at <= until
        )
        return record.run == run if run is not None else is_in_time


def choose_period(
    state: State,
    now: float,
    log_seconds: float,
    *,
    run: int | None = None,
    since: float | None = None,
    host: str | None = None,
) -> Period:
    """Return the period that the options of a call mean; times are in epoch seconds.

    Without a run or a moment that is the last crawl, or, for one host, all that the log has, which
    is ``log_seconds``. Raises CommandError for a run that the state does not have.
    """
    until = now + CLOCK_SKEW  # what is later was written by a wrong clock
    if run is None and since is None and host is not None:
        since = now - log_seconds
    if since is not None:
        runs = state.runs.latest(MOST_RUNS, since, until)
        return Period(
            span=Span(since=since), runs=runs, words=f"Since {format_moment(since)}", host=host
        )
    last = state.runs.latest(1, until=until, only_crawls=True)
    chosen = state.runs.find(run) if run is not None else next(iter(last), None)
    if chosen is None and run is not None:
        raise CommandError(f"there is no run {run} in the state; {_known(state)}")
    if chosen is None:
        return Period(span=Span(since=now), runs=(), words="No crawl is recorded", host=host)
    span = Span(since=chosen.begun, until=chosen.ended, run=chosen.id)
    command = f" by `scrapy {chosen.command}`" if chosen.command else ""
    words = f"Run {chosen.id} of {chosen.spider}{command}, {format_moment(chosen.begun)}"
    return Period(span=span, runs=(chosen,), words=words, host=host)


def _known(state: State) -> str:
    last = next(iter(state.runs.latest(1)), None)
    return f"the last one is run {last.id}" if last else "it has no run yet"
