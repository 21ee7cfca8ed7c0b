"""The summary of a run as about ten lines: what came of it, and what needs the operator."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.reasons import shorten
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.wording import and_more, count_of
from walsh_scrapy.tools.summary.counts import RequestCounts, SourceCounts, is_by_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from walsh_scrapy.visits.outcome import Troubles

#: Reasons of failures that have a line; the others are counted.
MOST_REASONS: Final = 3
#: Hosts that a line names; the others are counted.
MOST_HOSTS: Final = 2
#: Sites whose Comment lines are shown; the others are counted.
MOST_SITES: Final = 3
#: How a run ends in order, as Scrapy names it.
FINISHED: Final = "finished"

_Row = tuple[str, int, str]


def summary_lines(stats: Mapping[str, Any], troubles: Troubles, how: str, now: float) -> list[str]:
    """Return the summary of a run, a line for each outcome that any source or request had.

    ``how`` is how the run ended, as Scrapy names it, ``now`` in epoch seconds.
    """
    if not is_by_source(stats):
        return _table(_request_rows(RequestCounts.of(stats)), always=("responses",))
    counts = SourceCounts.of(stats)
    rows = _source_rows(counts, troubles)
    return [
        *_table(rows, always=("fetched", "new entries")),
        *_said(counts.comments),
        *(f"next: {step}" for step in next_steps(counts, how, now)),
    ]


def next_steps(counts: SourceCounts, how: str, now: float) -> list[str]:
    """Return what the operator can do next, a phrase each; none if all is well.

    What was deferred until a moment that has passed meanwhile may be asked for at once.
    """
    steps = []
    if counts.failed:
        steps.append("`scrapy sources` shows since when each source fails, and its next visit")
    still_due = counts.deferred + counts.not_reached
    if still_due:
        until = counts.deferred_until or 0.0
        when = f" after {format_moment(until)}" if until > now and how == FINISHED else ""
        steps.append(f"start the run again{when}: {count_of(still_due, 'source')} still due")
    return steps


def _source_rows(counts: SourceCounts, troubles: Troubles) -> list[_Row]:
    return [
        ("fetched", counts.fetched, ""),
        ("unchanged", counts.unchanged, "304 Not Modified, or an llms.txt that was read before"),
        ("denied", sum(counts.denied.values()), _by_gate(counts.denied)),
        ("deferred", counts.deferred, _deferred(troubles.deferred)),
        *_failed(counts.failed, troubles),
        ("gone", counts.gone, "410: not visited again until `scrapy sources resume URL`"),
        ("not reached", counts.not_reached, "still due: the run ended before"),
        ("not due", counts.not_due, _next_due(counts.next_due)),
        ("stopped", counts.stopped, "gone (410) on an earlier visit"),
        ("new entries", counts.new_entries, f"{counts.known_entries} known before"),
    ]


def _request_rows(counts: RequestCounts) -> list[_Row]:
    return [
        ("responses", counts.responses, "robots.txt included"),
        ("denied", sum(counts.denied.values()), _by_gate(counts.denied)),
        ("undeclared", counts.undeclared, "not requested (R6)"),
        ("deferred", counts.deferred, "their hosts may not be asked within WALSH_MAX_WAIT"),
        ("retried", counts.retried, "after 429 or 503"),
    ]


def _failed(failed: int, troubles: Troubles) -> list[_Row]:
    """Return the row of the failures, and rows without a name for its further reasons."""
    groups = troubles.failures.largest_first()
    remarks = [group.line(MOST_HOSTS) for group in groups[:MOST_REASONS]]
    if rest := groups[MOST_REASONS:]:
        sources = sum(group.sources for group in rest)
        hosts = tuple(dict.fromkeys(host for group in rest for host in group.hosts))
        reasons = count_of(len(rest), "more reason")
        remarks.append(f"{sources} for {reasons}: {shorten(hosts, MOST_HOSTS)}")
    names = ("failed", *[""] * len(remarks))
    return [(name, failed, remark) for name, remark in zip(names, remarks or [""], strict=False)]


def _deferred(until_by_host: Mapping[str, float]) -> str:
    if not until_by_host:
        return ""
    hosts = sorted(until_by_host, key=until_by_host.__getitem__)
    first = format_moment(until_by_host[hosts[0]])
    return f"the first until {first}: {shorten(tuple(hosts), MOST_HOSTS)}"


def _said(comments: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return what robots.txt files say to the operator, of the first sites that say it."""
    lines = [
        f"{origin}/robots.txt says: {' · '.join(texts)}"
        for origin, texts in islice(comments.items(), MOST_SITES)
    ]
    left = len(comments) - MOST_SITES
    return [*lines, f"{and_more(left)} with comments in robots.txt"] if left > 0 else lines


def _table(rows: Iterable[_Row], *, always: tuple[str, ...]) -> list[str]:
    """Return a line for each row with a count; a remark is only added to a count above 0.

    A row without a name goes on with the row above: it has a remark only.
    """
    return [
        f"{name:<12}{count if name else '':>7}{f'   {remark}' if remark and count else ''}"
        for name, count, remark in rows
        if count or name in always
    ]


def _by_gate(denied: Mapping[str, int]) -> str:
    return ", ".join(f"{count} by {gate}" for gate, count in denied.items() if count)


def _next_due(epoch_seconds: float | None) -> str:
    return "" if epoch_seconds is None else f"the next one at {format_moment(epoch_seconds)}"
