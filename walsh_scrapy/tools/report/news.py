"""What is new: entries by source and by day."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        item = _item(entry.item)
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


def _item(text: str) -> Mapping[str, object]:
    try:
        item = json.loads(text)
    except ValueError:  # one damaged entry must not hide the others
        return {}
    return item if isinstance(item, dict) else {}
