"""The figures of a period: new entries by source and day; requests, pauses and responses."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.audit.pace import JudgedRequest
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from walsh_scrapy.policy.audit.pace import Pause, PauseJudge
    from walsh_scrapy.policy.audit.record import LoggedRequest
    from walsh_scrapy.state.log import SeenEntry

#: Headlines of one source, and of all sources together.
OF_EACH: Final = 8
MOST: Final = 400
#: Sources that are listed with their entries.
MOST_SOURCES: Final = 150
_LONGEST_TITLE: Final = 160


class Headline(NamedTuple):
    """One new entry; ``url`` is empty if it is no http or https URL with a host."""

    title: str
    url: str
    published: str


@dataclass(frozen=True, slots=True)
class SourceNews:
    """The new entries of one source: how many, on which days, and the newest of them."""

    url: str
    title: str
    count: int
    days: Sequence[tuple[date, int]]
    headlines: Sequence[Headline]


@dataclass(frozen=True, slots=True)
class News:
    """All that is new."""

    count: int
    days: Sequence[tuple[date, int]]  #: each day from the first one to the last one
    sources: Sequence[SourceNews]  #: those with most entries first


def build_news(
    moments: Mapping[str, Sequence[float]],
    newest: Sequence[SeenEntry],
    names: Mapping[str, str],
) -> News:
    """Group entries by source and day (UTC).

    ``moments`` are when entries were first seen, in epoch seconds; ``names`` are those that
    operators gave to sources.
    """
    headlines: dict[str, list[Headline]] = {}
    titles: dict[str, str] = {}
    for entry in newest:
        item = item_of(entry.item)
        headlines.setdefault(entry.source, []).append(_headline(item))
        titles.setdefault(entry.source, _text(item, "source_title"))
    sources = [
        SourceNews(
            url=url,
            title=names.get(url) or titles.get(url) or "",
            count=len(seen),
            days=sorted(_days(seen).items()),
            headlines=headlines.get(url, ()),
        )
        for url, seen in moments.items()
    ]
    sources.sort(key=lambda source: (-source.count, source.url))
    days = _days([each for seen in moments.values() for each in seen])
    return News(days.total(), _without_gaps(days), sources)


def _days(moments: Sequence[float]) -> Counter[date]:
    return Counter(datetime.fromtimestamp(moment, UTC).date() for moment in moments)


def _without_gaps(days: Mapping[date, int]) -> list[tuple[date, int]]:
    if not days:
        return []
    first, last = min(days), max(days)
    every = (first + timedelta(days=number) for number in range((last - first).days + 1))
    return [(day, days.get(day, 0)) for day in every]


def _headline(item: Mapping[str, object]) -> Headline:
    url = _text(item, "url", longest=4096)
    is_link = url.startswith(("http://", "https://")) and bool(host_of(url))
    title = _text(item, "title") or _text(item, "url") or _text(item, "id") or "without a title"
    return Headline(title, url if is_link else "", _text(item, "published")[:10])


def _text(item: Mapping[str, object], name: str, longest: int = _LONGEST_TITLE) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        return ""
    return " ".join(cut(value, longest).split())


def item_of(text: str) -> Mapping[str, object]:
    """Return the item that an entry has as JSON; an empty one if it is damaged."""
    try:
        item = json.loads(text)
    except ValueError:  # it must not hide the others
        return {}
    return item if isinstance(item, dict) else {}


#: The kinds of responses, in the order of the page.
KINDS: Final = {
    "full": "2xx: a document",
    "unchanged": "304: unchanged",
    "redirect": "3xx: a redirect",
    "refused": "429 or 503: wait",
    "client": "4xx: not for us",
    "server": "5xx: it failed",
    "none": "no response",
    "open": "end unknown",
}


@dataclass(frozen=True, slots=True)
class HostLine:
    """The requests to one host, the first one first."""

    host: str
    sent: list[JudgedRequest] = field(default_factory=list)

    @property
    def smallest(self) -> Pause | None:
        """The smallest pause; None if no pause is known."""
        return min(self._pauses(), key=lambda each: each.kept or 0.0, default=None)

    @property
    def asked(self) -> Pause | None:
        """The pause for which most was asked; None if no pause is known."""
        return max(self._pauses(), key=lambda each: each.asked, default=None)

    @property
    def short(self) -> int:
        """How many pauses were shorter than asked for."""
        return sum(each.pause.is_breach for each in self.sent)

    def _pauses(self) -> Iterable[Pause]:
        return (each.pause for each in self.sent if each.pause.kept is not None)


def host_lines(
    records: Iterable[LoggedRequest],
    judge: PauseJudge,
    is_included: Callable[[LoggedRequest], bool],
) -> list[HostLine]:
    """Return the line of each host, those with short pauses first, then the longest.

    ``records`` come in the order of the judge, and may include others before those that are
    included: a pause counts from the last request of any run.
    """
    lines: dict[str, HostLine] = {}
    for record in records:
        judged = JudgedRequest(record, judge.judge(record))
        if is_included(record):
            lines.setdefault(record.host, HostLine(record.host)).sent.append(judged)
    return sorted(lines.values(), key=lambda line: (-line.short, -len(line.sent), line.host))


def smallest(lines: Sequence[HostLine]) -> HostLine | None:
    """Return the host with the smallest pause; None if no pause is known."""
    paused = [line for line in lines if line.smallest is not None]
    return min(paused, key=lambda line: line.smallest.kept or 0.0, default=None)  # type: ignore[union-attr]


def kind_of(sent: LoggedRequest) -> str:
    """Return the kind of the response to a request, a key of KINDS."""
    status = sent.status
    if status is None:
        return "open" if sent.is_open else "none"
    if status in (429, 503):
        return "refused"
    if status == 304:
        return "unchanged"
    return {2: "full", 3: "redirect", 4: "client", 5: "server"}.get(status // 100, "none")


def answers(records: Iterable[LoggedRequest]) -> dict[str, int]:
    """Return how many responses of each kind there were, without kinds that did not come."""
    counts = Counter(kind_of(record) for record in records)
    return {kind: counts[kind] for kind in KINDS if counts[kind]}
