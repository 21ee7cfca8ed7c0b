"""What needs the operator, the most urgent first: runs, pauses, hosts, and sources in trouble."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy import wording
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.runtime.gates import ADVICE
from walsh_scrapy.tools.status.facts import ENDED_EARLY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.state.log import RunVisit
    from walsh_scrapy.state.runs import RunRecord
    from walsh_scrapy.tools.hosts import HostRow
    from walsh_scrapy.tools.report.figures import HostLine
    from walsh_scrapy.tools.sources.overview import SourceRow
    from walsh_scrapy.tools.status.findings import Finding

#: Sources in trouble that the page lists; it says how many more there are.
MOST_TROUBLES: Final = 150
#: Failures in a row after which a source is worth a look.
_MANY_FAILURES: Final = 5
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
        yield Need(f"{count_of(len(early), 'run')} ended early, the last one: {last.how}", "runs")
    if killed:
        yield Need(f"{count_of(len(killed), 'run')} did not end in order, or still go on", "runs")


def _of_pauses(lines: Sequence[HostLine]) -> Iterator[Need]:
    if short := sum(line.short for line in lines):
        hosts = count_of(sum(line.short > 0 for line in lines), "host")
        were = "was" if short == 1 else "were"
        yield Need(f"{count_of(short, 'pause')} at {hosts} {were} shorter than asked for", "pauses")


def _of_sources(troubles: Sequence[Trouble]) -> Iterator[Need]:
    counts = Counter(trouble.what for trouble in troubles)
    for what, words in _WORDS.items():
        if count := counts[what]:
            verb = "has" if what == "moved" and count == 1 else "have" if what == "moved" else ""
            verb = verb or ("is" if count == 1 else "are")
            yield Need(f"{count_of(count, 'source')} {verb} {words}", "sources")


def _of_hosts(resting: Sequence[HostRow]) -> Iterator[Need]:
    long = [row for row in resting if row.is_long_hold]
    if long:
        verb = "is" if len(long) == 1 else "are"
        yield Need(f"{count_of(len(long), 'host')} {verb} on hold for over a day", "resting")


@dataclass(frozen=True, slots=True)
class Trouble:
    """One source that needs the operator."""

    row: SourceRow
    what: str  #: gone, refused, failing, denied, moved or resent
    why: str
    since: str
    advice: str
    command: str = ""  #: that the advice speaks of


def in_trouble(row: SourceRow) -> str:
    """Return what is wrong with a source in one word; empty if nothing is."""
    if row.due.rule == "gone":
        return "gone"
    if row.record.outcome.startswith("denied"):
        return "denied"
    if row.record.is_refused:
        return "refused"
    if row.record.failures:
        return "failing"
    move = row.record.move
    if move and move.is_settled and not move.is_doubted:
        return "moved"
    return "resent" if row.resent_why else ""


def find_troubles(
    rows: Iterable[SourceRow], visits: Mapping[str, Sequence[RunVisit]]
) -> list[Trouble]:
    """Return the sources in trouble, in the order of ``rows``.

    ``visits`` are the runs that requested a URL, the newest first.
    """
    return [
        Trouble(row, what, _why(row, what), _since(row, what, visits), *_advice(row, what))
        for row in rows
        if (what := in_trouble(row))
    ]


def by_advice(troubles: Sequence[Trouble]) -> list[tuple[Trouble, list[Trouble]]]:
    """Return each advice, by a trouble that has it, with all troubles that have it."""
    groups: dict[tuple[str, str], list[Trouble]] = {}
    for trouble in troubles:
        groups.setdefault((trouble.what, trouble.advice), []).append(trouble)
    return [(group[0], group) for group in groups.values()]


def _why(row: SourceRow, what: str) -> str:
    record = row.record
    if what == "moved":
        return f"permanent redirects lead to {record.moved_to}"
    if what == "gone":
        return "it answered 410: gone for good"
    if what == "denied":
        return f"{record.outcome}: {record.detail}"
    if what == "resent":
        return row.resent_why
    if what == "refused":
        return f"its site answers {record.status}"
    return f"{record.detail or 'it failed'} ({count_of(record.failures, 'time')} in a row)"


def _since(row: SourceRow, what: str, visits: Mapping[str, Sequence[RunVisit]]) -> str:
    """Say since when; the log of requests has the visits of 30 days."""
    record = row.record
    if what == "moved" and record.moved_since is not None:
        return f"since {format_moment(record.moved_since)}"
    if what == "refused" and record.refused_since is not None:
        return f"since {format_moment(record.refused_since)}"
    if what == "failing":
        seen = visits.get(record.address, ()) or visits.get(record.url, ())
        if len(seen) >= record.failures:
            return f"since {format_moment(seen[record.failures - 1].at)}"
        if seen:
            return f"since {format_moment(seen[-1].at)} or before"
    at = record.fetched_at
    if at is None:
        return "since an unknown time"
    return f"since {format_moment(at)}" if what == "gone" else f"last seen {format_moment(at)}"


def _advice(row: SourceRow, what: str) -> tuple[str, str]:
    """Return what to do, and the command for it or an empty text."""
    record = row.record
    if what == "gone":
        return (
            "Take it out of the sources file (scrapy sources prune). If it is back:",
            f"scrapy sources resume {record.url}",
        )
    if what == "refused":
        return "The site asked to wait. To see until when, and why:", "scrapy hosts"
    if what == "resent":
        return _weak(record.etag), ""
    if what == "moved":
        return "Write the new address into the sources file (scrapy sources rewrite --moved).", ""
    if what == "denied":
        gate = record.outcome.removeprefix("denied by ")
        if gate in ADVICE:
            return ADVICE[gate], f"scrapy mayfetch {record.url}"
        return f"{gate}, a gate of this project, denies it. To see why:", f"scrapy why {record.url}"
    return _failing(row)


def _weak(etag: bytes | None) -> str:
    """Return what the owner of a site could do so that it answers 304 (RFC 9110 13.1.2)."""
    advice = "Each visit costs the site a whole document. Its owner could have it answer 304: "
    if etag and etag.startswith(b"W/"):
        return (
            f"{advice}compare If-None-Match weakly (with and without W/), or leave the ETag as it "
            "is on its way (nginx: no gzip for feeds)."
        )
    return f"{advice}compare If-None-Match and If-Modified-Since with what it sent."


def _failing(row: SourceRow) -> tuple[str, str]:
    record, status = row.record, row.record.status
    look = f"scrapy discover {row.record.url}"
    lasting = record.failures >= _MANY_FAILURES
    if status in (401, 402, 403):
        return "The site does not want this. Ask its owner, or take it out of the sources file.", ""
    if status in (404, 405, 451):
        return "Nothing is at this address. Look where it is now:", look
    if status is not None and status >= 500:
        if lasting:
            return "Its server keeps failing. Write to its owner, or take it out.", ""
        return "Its server failed. Nothing to do yet: it is tried again by itself.", ""
    if status is not None and status < 300:
        return "What is there could not be read as a feed. Look what the site offers:", look
    if lasting:
        return "It has not answered for long. Check its address, or take it out:", look
    return "It did not answer. Nothing to do yet: it is tried again by itself.", ""


def count_of(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun, thousands apart: `10,000 requests`."""
    return wording.count_of(number, singular, plural).replace(str(number), f"{number:,}", 1)
