"""What needs the operator, the most urgent first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.tools.report.words import counted
from walsh_scrapy.tools.status.facts import ENDED_EARLY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.state.runs import RunRecord
    from walsh_scrapy.tools.hosts import HostRow
    from walsh_scrapy.tools.report.spacing import HostLine
    from walsh_scrapy.tools.report.trouble import Trouble
    from walsh_scrapy.tools.status.findings import Finding

_WORDS: Final = {
    "gone": "gone for good (410)",
    "failing": "failing",
    "refused": "refused by their sites (429, 503)",
    "denied": "denied by a gate",
    "moved": "moved for good",
    "resent": "sent again though unchanged (no 304)",
}


class Need(NamedTuple):
    """One thing to look at, and the section of the page that tells more."""

    text: str
    section: str


def find_needs(
    runs: Sequence[RunRecord],
    lines: Sequence[HostLine],
    troubles: Sequence[Trouble],
    resting: Sequence[HostRow],
    unread_sources: str,
    clock: Finding,
) -> list[Need]:
    """Return what needs the operator; empty if nothing does.

    ``unread_sources`` says why the sources file could not be read. ``clock`` judges the times in
    the state.
    """
    return [
        *_of_runs([run for run in runs if not run.command]),
        *([Need(f"{clock.what}: {clock.advice}", "runs")] * bool(clock.status)),
        *_of_pauses(lines),
        *(
            [Need(f"The sources file was not read: {unread_sources}", "sources")]
            * bool(unread_sources)
        ),
        *_of_sources(troubles),
        *_of_hosts(resting),
    ]


def _of_runs(runs: Sequence[RunRecord]) -> Iterator[Need]:
    early = [run for run in runs if run.how in ENDED_EARLY]
    # Only the newest run may still go on.
    killed = [run for run in runs[1:] if not run.is_over]
    if early:
        last = early[0]
        yield Need(f"{counted(len(early), 'run')} ended early, the last one: {last.how}", "runs")
    if killed:
        yield Need(f"{counted(len(killed), 'run')} did not end in order, or still go on", "runs")


def _of_pauses(lines: Sequence[HostLine]) -> Iterator[Need]:
    if short := sum(line.short for line in lines):
        hosts = counted(sum(line.short > 0 for line in lines), "host")
        were = "was" if short == 1 else "were"
        yield Need(f"{counted(short, 'pause')} at {hosts} {were} shorter than asked for", "pauses")


def _of_sources(troubles: Sequence[Trouble]) -> Iterator[Need]:
    counts = Counter(trouble.what for trouble in troubles)
    for what, words in _WORDS.items():
        if count := counts[what]:
            verb = "has" if what == "moved" and count == 1 else "have" if what == "moved" else ""
            verb = verb or ("is" if count == 1 else "are")
            yield Need(f"{counted(count, 'source')} {verb} {words}", "sources")


def _of_hosts(resting: Sequence[HostRow]) -> Iterator[Need]:
    long = [row for row in resting if row.is_long_hold]
    if long:
        verb = "is" if len(long) == 1 else "are"
        yield Need(f"{counted(len(long), 'host')} {verb} on hold for over a day", "resting")
