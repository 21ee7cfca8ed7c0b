"""``scrapy sources show``: one source from end to end, and what its host allows now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.urls import canonical_url, host_of
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.tools.output import as_dict, facts
from walsh_scrapy.tools.sources.overview import COLUMNS
from walsh_scrapy.tools.why.letter import answer_to
from walsh_scrapy.tools.why.outlook import look_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.audit.record import LoggedDenial, LoggedRequest
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.sources.overview import SourceRow
    from walsh_scrapy.tools.why.outlook import Outlook

#: Requests that are told of, the newest first.
_MOST_REQUESTS: Final = 10
_WIDTH: Final = len("validators  ")


@dataclass(frozen=True, slots=True)
class Profile:
    """One source; what was asked and denied last, and its host as of now, if there is a state."""

    row: SourceRow
    requests: tuple[LoggedRequest, ...] = ()
    denial: LoggedDenial | None = None
    host: Outlook | None = None

    def lines(self) -> Iterator[str]:
        """Yield the source in words, a fact a line."""
        yield self.row.record.url
        for name, told in (
            ("declared", _declared(self.row.source)),
            ("visits", facts(self.row, COLUMNS)),
            ("read as", _reading(self.row)),
            ("validators", _validators(self.row)),
            ("wishes", _wishes(self.row)),
            ("asked", map(_request, self.requests)),
            ("denied", _denied(self.denial)),
            ("host", self.host.lines() if self.host else ()),
        ):
            label = name
            for each in told:
                yield f"  {label:{_WIDTH}}{each}"
                label = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the object for ``--json``: the fields of the list, and those of `show` alone."""
        record, source, host = self.row.record, self.row.source, self.host
        every, pause = (source.every, source.pause) if source else (None, None)
        return as_dict(self.row, COLUMNS) | {
            "folder": "/".join(source.folders) if source and source.folders else None,
            "page": source.page if source else None,
            "every": every.total_seconds() if every else None,
            "pause": pause.total_seconds() if pause else None,
            "visited_since": rfc3339(record.visited_since),
            "format": record.format or None,
            "asked_interval": record.asked_interval,
            "wished_interval": record.wished_interval,
            "skip_hours": record.skip_hours or None,
            "skip_days": record.skip_days or None,
            "validator_url": record.validator_url,
            "etag": _text(record.etag),
            "last_modified": _text(record.last_modified),
            "moved_on_to": record.onward_to,
            "requests": [_request_object(each) for each in self.requests],
            "denial": self.denial
            and {
                "at": rfc3339(self.denial.at),
                "url": self.denial.url,
                "gate": self.denial.gate,
                "reason": self.denial.reason,
            },
            "host_hold_until": rfc3339(host.hold_until) if host else None,
            "host_hold_why": host.hold_why if host else None,
            "host_not_before": rfc3339(host.ready_at) if host else None,
            "host_delay": host.delay if host else None,
        }


def build_profile(row: SourceRow, state: State | None, options: Options) -> Profile:
    """Return what the state has of a source, as of one moment."""
    if state is None:
        return Profile(row)
    record = row.record
    addresses = {record.url, record.address}
    paced = {options.pace_by.unit(url) for url in addresses}
    with state.log() as log:
        host = look_ahead(state, log, options, record.address, sources=None, wanted=None)
        denials = [
            each
            for name in {host_of(url) for url in addresses}
            for each in log.denials(TimeSpan(), name)
            if canonical_url(each.url) in set(map(canonical_url, addresses))
        ]
        return Profile(
            row,
            tuple(log.last_for(record.url, paced, _MOST_REQUESTS)),
            max(denials, key=lambda each: each.at, default=None),
            host,
        )


def _declared(source: Source | None) -> Iterator[str]:
    if source is None:
        yield "no longer"
        return
    yield f"kind {source.kind}{f', named {source.name!r}' if source.name else ''}"
    if source.tags:
        yield f"tags {', '.join(source.tags)}"
    if source.folders:
        yield f"in the folder {'/'.join(source.folders)}"
    if source.page:
        yield f"page {source.page}"
    if source.every:
        yield f"visited every {format_seconds(source.every.total_seconds())} at most"
    if source.pause:
        yield f"a pause of {format_seconds(source.pause.total_seconds())} between requests"


def _reading(row: SourceRow) -> Iterator[str]:
    if row.record.format:
        yield row.record.format


def _validators(row: SourceRow) -> Iterator[str]:
    record = row.record
    given = {"ETag": _text(record.etag), "Last-Modified": _text(record.last_modified)}
    if any(given.values()):
        yield f"of {record.validator_url}"
    yield from (f"{name}: {value}" for name, value in given.items() if value)


def _wishes(row: SourceRow) -> Iterator[str]:
    """Yield who wants how much time between two visits; the list says which of it decides."""
    record = row.record
    if record.asked_interval:
        yield f"its server asked for {format_seconds(record.asked_interval)}"
    if record.wished_interval:
        yield f"its feed asks for {format_seconds(record.wished_interval)}"
    if record.skip_hours:
        yield f"its feed skips the hours {record.skip_hours} (UTC)"
    if record.skip_days:
        yield f"its feed skips {record.skip_days} (UTC)"


def _request(record: LoggedRequest) -> str:
    came = f"; a redirect of {record.redirected_by} led here" if record.redirected_by else ""
    rule = f"; line {record.line} of robots.txt: {record.rule}" if record.rule else ""
    run = f"; run {record.run}" if record.run else ""
    return f"{format_moment(record.sent_at)}  {record.url}  {answer_to(record)}{rule}{came}{run}"


def _request_object(record: LoggedRequest) -> dict[str, Any]:
    names = ("url", "status", "seconds", "error", "run", "pause", "hold", "retry_after", "gates")
    more = ("rule", "line", "robots", "robots_status", "redirected_by")
    return {"sent_at": rfc3339(record.sent_at)} | {
        name: getattr(record, name) for name in (*names, *more)
    }


def _denied(denial: LoggedDenial | None) -> Iterator[str]:
    if denial:
        yield f"{format_moment(denial.at)}  {denial.url}  by {denial.gate}: {denial.reason}"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
