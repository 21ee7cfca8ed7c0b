"""The list of ``scrapy new``: new entries by source, the newest first, with title and URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from rich.style import Style
from rich.text import Text

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.tools.export.entries import item_of
from walsh_scrapy.tools.output import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.state import State

_INDENT: Final = " " * len("  2026-05-23 06:00  ")
#: Terminals that are narrower than this have the title below the time.
_NARROW: Final = 50
_NO_WIDTH: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class NewEntry:
    """What the list shows of one entry. All texts are those of strangers."""

    source: str
    source_title: str
    title: str
    url: str | None
    moment: str  #: to the minute, in UTC: when it was published, or else when it was first seen

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Self:
        """Read an exported item."""
        moment = item.get("published") or item.get("first_seen") or ""
        title = item.get("title") or item.get("url") or item.get("id") or "without a title"
        return cls(
            source=item["source"],
            source_title=item.get("source_title") or item["source"],
            title=title,
            url=item.get("url"),
            moment=moment[:16].replace("T", " "),
        )


def new_items(state: State, since: float) -> Iterator[dict[str, Any]]:
    """Yield the items first seen at ``since`` (epoch seconds) or later, the first seen first."""
    with state.entries.snapshot() as entries:
        for entry in entries.matching(since=since):
            yield item_of(entry).to_dict()


def default_since(state: State, now: float) -> float | None:
    """Return when the last run that found something began, in epoch seconds; None without one.

    What was found in the future, by a wrong clock, does not count.
    """
    number = state.entries.latest_run(now + CLOCK_SKEW)
    run = None if number is None else state.runs.find(number)
    return None if run is None else run.begun


def new_lines(found: Sequence[NewEntry], width: int | None = None) -> Iterator[Text]:
    """Yield the list as lines; titles are folded to ``width`` cells, and not for None.

    A terminal opens the links; markup in texts of strangers has no effect.
    """
    for number, entries in enumerate(_by_source(found)):
        source = entries[0]
        if number:
            yield Text()
        head = f"{printable(source.source_title)} ({len(entries)} new)"
        yield Text(head, Style(bold=True) + _link(source.source))
        if source.source_title != source.source:
            yield Text(printable(source.source), "dim")
        for entry in entries:
            yield from _entry_lines(entry, width)


def totals(found: Sequence[NewEntry], since: float, *, is_run: bool) -> str:
    """Return one line: how much is new, of how many sources, and since when."""
    when = format_moment(since) + (", the last run that found something" if is_run else "")
    if not found:
        return f"nothing is new since {when}"
    sources = count_of(len({entry.source for entry in found}), "source")
    return f"{count_of(len(found), 'entry', 'entries')} of {sources}, new since {when}"


def _entry_lines(entry: NewEntry, width: int | None) -> Iterator[Text]:
    moment = f"  {entry.moment:16}  "
    title, url = printable(entry.title), printable(entry.url) if entry.url else None
    indent = _INDENT
    if width is not None and width < _NARROW:
        yield Text(moment.rstrip(), "dim")
        moment = indent = "    "
    link = _link(entry.url) if entry.url else Style()
    for number, line in enumerate(fold([title], (width or _NO_WIDTH) - len(indent))):
        yield Text.assemble((indent if number else moment, "dim"), (line, link))
    if url and url != title:
        yield Text(f"{indent}{url}", "dim")


def _by_source(found: Sequence[NewEntry]) -> Iterable[Sequence[NewEntry]]:
    """Return the entries of each source, the newest first; sources by their titles."""
    groups: dict[str, list[NewEntry]] = {}
    for entry in sorted(found, key=lambda entry: entry.moment, reverse=True):
        groups.setdefault(entry.source, []).append(entry)
    return sorted(
        groups.values(), key=lambda group: (group[0].source_title.casefold(), group[0].source)
    )


def _link(url: str) -> Style:
    """Return a link for a terminal; what has to be escaped is no address."""
    return Style(link=url) if printable(url) == url else Style()
