"""``scrapy new``: what is new, as a list to read.

Lists new entries by source, the newest first: when they were published, their title and their URL.
Without --since these are the entries since the begin of the last run that found something. Exit
status: 0, also if nothing is new; 1 if it cannot be done, 2 for a wrong call. Examples: scrapy new.
scrapy new --since yesterday. scrapy new --since 7d --json
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from rich.console import Console
from rich.style import Style
from rich.text import Text

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.tools.call import add_json, add_since
from walsh_scrapy.tools.export.entries import item_of
from walsh_scrapy.tools.output import fold, json_array, print_lines, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

_INDENT: Final = " " * len("  2026-05-23 06:00  ")
#: Terminals that are narrower than this have the title below the time.
_NARROW: Final = 50
_NO_WIDTH: Final = 1_000_000


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_since(parser, "entries first seen since then")
    add_json(parser)


def run(call: Call) -> int:
    """List what is new."""
    is_run, as_json = call.arguments.since is None, call.arguments.json
    with call.state_if_any() as state:
        since = default_since(state, time.time()) if state and is_run else call.arguments.since
        if state is None or since is None:
            words = "no recorded run has found anything; --since WHEN lists by time"
            print(words, file=sys.stderr if as_json else sys.stdout)
            print_lines(["[]"] if as_json else ())
        elif as_json:
            print_lines(json_array(new_items(state, since)))
        else:
            found = [NewEntry.of(item) for item in new_items(state, since)]
            show(new_lines(found, Console().width if sys.stdout.isatty() else None))
            print(totals(found, since, is_run=is_run))
    return 0


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
