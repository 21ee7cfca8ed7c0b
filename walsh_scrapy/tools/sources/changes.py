"""``scrapy sources forget`` and ``resume``: which sources they mean, and what they change."""

from __future__ import annotations

import difflib
from functools import cached_property
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.urls import canonical_url, host_of
from walsh_scrapy.policy.wording import counted
from walsh_scrapy.sources import Source, declared_urls, load_sources
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.hosts import held_name, on_hold
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State


class Changes:
    """Changes what the state knows of sources; each method yields a line for every source.

    A URL may be spelled as it is declared, or in any way with the same canonical URL. Each method
    raises UnknownSource for a URL that is neither in the state nor declared in ``file``; the file
    is only read when it is needed.
    """

    def __init__(self, state: State | None, file: str, options: Options) -> None:
        self._state = state
        self._file = file
        self._options = options

    def forget(self, url: str) -> Iterator[str]:
        """Delete what the state knows of a source, except its entries."""
        for each in self._find(url):
            self._forget_llms_txt(each)
            held = self._hold(each)
            stays = f"; {held}, and that stays" if held else ""
            kept = self._state.sources.forget(each) if self._state else None
            if kept is None:
                yield f"no visit of {printable(each)} has ended: there is nothing to forget{stays}"
                continue
            entries = counted(kept, "entry", "entries")
            remain = f"; {entries} from it remain known" if kept else ""
            yield f"{printable(each)} is forgotten: its next visit is its first{remain}{stays}"

    def resume(self, url: str) -> Iterator[str]:
        """Make a source due that is gone or failing."""
        for each in self._find(url):
            if self._state and self._state.sources.resume(each):
                self._forget_llms_txt(each)
                held = self._hold(each)
                due = f"due, but {held};" if held else "due now, and"
                yield f"{printable(each)} is {due} its failures are counted from 0"
                continue
            yield f"{printable(each)} is neither gone nor failing: it is due {self._due(each)}"

    def _due(self, url: str) -> str:
        record = self._state.sources.find(url) if self._state else None
        held = self._hold(url)
        if record is None or record.fetched_at is None or record.due_at <= 0.0:
            return f"as before, but {held}" if held else "now, as before"
        source, revisit = self._declared.get(canonical_url(url)), self._options.min_revisit
        least = source.revisit_interval(revisit) if source else revisit
        history = None
        if self._state and self._options.adaptive:
            history = self._state.sources.histories(record.url).get(record.url)
        due = f"{format_moment(record.due(least, record.fetched_at, history).at)}, as before"
        return f"{due}, but {held}" if held else due

    def _hold(self, url: str) -> str:
        """Say until when the host of a source is on hold; nothing if it is not."""
        if self._state is None:
            return ""
        record = self._state.sources.find(url)
        address = record.address if record else url
        found = self._state.ledger.find(held_name(address, self._options.pace_by))
        return on_hold(host_of(address), found.times.hold_until) if found.hold else ""

    def _forget_llms_txt(self, url: str) -> None:
        """Make the next visit request the llms.txt too, where it is declared and where it moved.

        The source may be an llms.txt itself.
        """
        record = self._state.sources.find(url) if self._state else None
        if self._state and record and record.kind == "llms":
            for address in {url, record.address}:
                for llms_txt in declared_urls(Source(address, "llms")):
                    self._state.llmstxt.forget(llms_txt)

    def _find(self, url: str) -> list[str]:
        try:
            return find_sources(url, self._known)
        except UnknownSource:
            declared = (source.url for source in self._declared.values())
            return find_sources(url, {**self._known, **dict.fromkeys(declared)})

    @cached_property
    def _known(self) -> dict[str, None]:
        return self._state.sources.urls() if self._state else {}

    @cached_property
    def _declared(self) -> dict[str, Source]:
        return {canonical_url(source.url): source for source in load_sources(self._file)}


_ANYWHERE: Final = "a source, declared or in the state"


class UnknownSource(CommandError):
    """A URL is not that of any source; the message is one line and suggests the nearest."""


def find_sources(url: str, known: Collection[str], where: str = _ANYWHERE) -> list[str]:
    """Return the known URLs that ``url`` means: itself, or all with the same canonical URL.

    Raises UnknownSource if there is none; ``where`` is what it then is not.
    """
    if url in known:
        return [url]
    canonical = canonical_url(url)
    if same := [each for each in known if canonical_url(each) == canonical]:
        return same
    near = nearest(url, known)
    hint = f"; did you mean {near}?" if near else "; `scrapy sources --all` lists all sources"
    raise UnknownSource(printable(f"{url} is not {where}{hint}"))


def nearest(url: str, known: Collection[str]) -> str | None:
    """Return the known URL most similar to ``url``, by host first; None if no host is similar."""
    hosts: dict[str, list[str]] = {}
    for each in known:
        hosts.setdefault(host_of(each), []).append(each)
    for near in difflib.get_close_matches(host_of(url), hosts, n=1):
        return difflib.get_close_matches(url, hosts[near], n=1, cutoff=0.0)[0]
    return None
