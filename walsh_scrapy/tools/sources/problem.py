"""What is wrong with a source, since when, and what to do: decided once, here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.crawl.startup import ADVICE
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.wording import count_of

if TYPE_CHECKING:
    from walsh_scrapy.state.records import SourceRecord
    from walsh_scrapy.tools.sources.overview import SourceRow

#: Failures in a row after which a source is worth a look.
_MANY_FAILURES: Final = 5


class Problem(NamedTuple):
    """What is wrong with a source."""

    what: str  #: gone, refused, failing, denied, moved or resent
    why: str
    begun: float | None  #: epoch seconds; None if it is not recorded
    since: str  #: the same in words
    advice: str
    command: str  #: that the advice speaks of; "" for none

    @property
    def todo(self) -> str:
        """The advice with its command."""
        return f"{self.advice} {self.command}".rstrip()


def problem_of(row: SourceRow) -> Problem | None:
    """Return what is wrong with a source; None if nothing is."""
    what = _what(row)
    if not what:
        return None
    begun = _begun(row, what)
    return Problem(what, _why(row, what), begun, _since(row, begun), *_advice(row, what))


def _what(row: SourceRow) -> str:
    """Return what is wrong in one word; empty if nothing is."""
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
    return "resent" if row.record.ignores_validators else ""


def _resent(record: SourceRecord) -> str:
    """Say why its server seems to know no 304 (R7)."""
    if record.etag and record.etag.startswith(b"W/"):
        cause = "its ETag is weak: a proxy such as nginx with gzip may have weakened it"
    else:
        cause = "its server does not compare them"
    times = count_of(record.resent, "time")
    return f"never 304: the same document came {times} in a row for its own validators; {cause}"


def _why(row: SourceRow, what: str) -> str:
    record = row.record
    if what == "moved":
        return f"permanent redirects lead to {record.moved_to}"
    if what == "gone":
        return "it answered 410: gone for good"
    if what == "denied":
        return f"{record.outcome}: {record.detail}"
    if what == "resent":
        return _resent(record)
    if what == "refused":
        return f"its site answers {record.status}"
    return f"{record.detail or 'it failed'} ({count_of(record.failures, 'time')} in a row)"


def _begun(row: SourceRow, what: str) -> float | None:
    """Return when a trouble began, in epoch seconds; None if it is not recorded."""
    record = row.record
    begins = {
        "gone": record.fetched_at,  # it was not asked since
        "moved": record.moved_since,
        "refused": record.refused_since,
        "failing": record.failing_since,
    }
    return begins.get(what)


def _since(row: SourceRow, begun: float | None) -> str:
    if begun:
        return f"since {format_moment(begun)}"
    at = row.record.fetched_at
    return "since an unknown time" if at is None else f"last seen {format_moment(at)}"


def _advice(row: SourceRow, what: str) -> tuple[str, str]:
    """Return what to do, and the command for it or an empty text."""
    record = row.record
    if what == "gone":
        return (
            "Take it out of the sources file. If it is back:",
            f"scrapy sources resume {record.url}",
        )
    if what == "refused":
        return "The site asked to wait. To see until when, and why:", "scrapy hosts"
    if what == "resent":
        return _weak(record.etag), ""
    if what == "moved":
        return "Write the new address into the sources file (scrapy sources has the line).", ""
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
