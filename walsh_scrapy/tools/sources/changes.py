"""What ``scrapy sources`` changes: the state (forget, resume) and the sources file (all others)."""

from __future__ import annotations

import difflib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.urls import canonical_url, host_of
from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.sources import Source, SourcesError, declared_urls, load_sources, target_url
from walsh_scrapy.sources.editing import Edit, edit_sources
from walsh_scrapy.sources.loading import declarations, read_body
from walsh_scrapy.state.sourcerecord import KnownSources
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.files import open_output
from walsh_scrapy.tools.hosts import on_hold
from walsh_scrapy.tools.sources.overview import declared_record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.sourcerecord import SourceRecord


class SourceChanges:
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
            entries = count_of(kept, "entry", "entries")
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
        due = f"{format_moment(record.due(least, record.fetched_at).at)}, as before"
        return f"{due}, but {held}" if held else due

    def _hold(self, url: str) -> str:
        """Say until when the host of a source is on hold; nothing if it is not."""
        if self._state is None:
            return ""
        record = self._state.sources.find(url)
        address = record.address if record else url
        found = self._state.ledger.find(self._options.pace_by.hold(address))
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
    raise UnknownSource(f"{url} is not {where}{hint}")


def nearest(url: str, known: Collection[str]) -> str | None:
    """Return the known URL most similar to ``url``, by host first; None if no host is similar."""
    hosts: dict[str, list[str]] = {}
    for each in known:
        hosts.setdefault(host_of(each), []).append(each)
    for near in difflib.get_close_matches(host_of(url), hosts, n=1):
        return difflib.get_close_matches(url, hosts[near], n=1, cutoff=0.0)[0]
    return None


class DeclaredSources:
    """The sources file, and what the state knows of its sources.

    Each method yields lines for the operator. It replaces the file whole or not at all, and raises
    SourcesError for one that cannot be read or edited, CommandError for one that cannot be written.
    """

    def __init__(self, file: str, state: State | None) -> None:
        self._file = Path(file)
        self._state = state

    def undeclared(self, urls: Iterable[str]) -> list[str]:
        """Return the URLs that the file does not declare in any spelling, each once.

        A file that is not there declares none.
        """
        declared = declarations(self._file, self._body_or_none)
        known = {canonical_url(each.source.url) for each in declared}
        new: dict[str, str] = {}
        for url in urls:
            if canonical_url(url) not in known:
                new.setdefault(canonical_url(url), url)
        return list(new.values())

    def add(self, sources: Sequence[Source]) -> Iterator[str]:
        """Declare sources, at the end of the file; it is made if there is none.

        What is declared already stays as it is.
        """
        by_url = {source.url: source for source in sources}
        new = [by_url[url] for url in self.undeclared(by_url)]
        if new:
            self._write(self._body_or_none, Edit(added=new))
        for source in by_url.values():
            kind = f" (kind {source.kind!r})" if source.kind != "feed" else ""
            how = "is declared" if source in new else "was declared before"
            yield f"{source.url}{kind} {how} in {self._file}"

    def remove(self, urls: Sequence[str]) -> Iterator[str]:
        """Remove declarations; what the state knows stays. Raises UnknownSource, and removes none.

        A URL may be spelled in any way.
        """
        declared = dict.fromkeys(source.url for source in self._sources)
        where = f"declared in {self._file}"
        chosen = dict.fromkeys(each for url in urls for each in find_sources(url, declared, where))
        self._write(read_body(self._file), Edit(removed=chosen))
        for url in chosen:
            yield f"{url} is removed from {self._file}; its entries stay known"

    def prune(self, failing: float | None = None, *, really: bool) -> Iterator[str]:
        """Name the sources that are gone (410); remove them if ``really``.

        With ``failing`` these are the ones whose failures in a row span so many seconds.
        """
        chosen = [each for each in self._records.values() if _is_lost(each, failing)]
        for record in chosen:
            begun = record.failing_since if failing is not None else None
            since = f", failing since {format_moment(begun)}" if begun else ""
            seen = format_moment(record.fetched_at or 0.0)
            yield f"{record.url}: {record.detail or 'gone (410)'}{since}, last asked {seen}"
        if not chosen:
            yield "no source is gone (410)" if failing is None else "no source fails for so long"
        elif really:
            yield from self.remove([record.url for record in chosen])
        else:
            count = count_of(len(chosen), "source")
            yield f"{count} to remove from {self._file}; the same command with --yes does it"

    def rewrite_moved(self) -> Iterator[str]:
        """Declare sources where they settled after a move; each keeps all that is known of it."""
        taken = set(map(canonical_url, self._records))
        rewritten: dict[str, str] = {}
        for url, record in self._records.items():
            move = record.move
            if move is None:
                continue
            try:
                to = target_url(move.to)
            except SourcesError as error:
                yield f"{url} stays: {error}"
                continue
            is_other = canonical_url(to) != canonical_url(url)
            if not move.is_settled:
                yield f"{url} stays: its move to {to} is not settled yet"
            elif move.failing_since is not None:
                since = format_moment(move.failing_since)
                yield f"{url} stays: visits to {to} fail since {since}"
            elif is_other and canonical_url(to) in taken:
                yield f"{url} stays: {to} is declared too, so remove one of them"
            else:
                taken.add(canonical_url(to))
                rewritten[url] = to
        if rewritten:
            self._write(read_body(self._file), Edit(rewritten=rewritten))
        for url, to in rewritten.items():
            yield f"{url} is now {to} in {self._file}"
        if not rewritten:
            yield "no source has a move to settle in the file"

    @cached_property
    def _sources(self) -> tuple[Source, ...]:
        return load_sources(self._file)

    @cached_property
    def _known(self) -> KnownSources:
        return KnownSources(self._state.sources.all() if self._state else ())

    @cached_property
    def _records(self) -> dict[str, SourceRecord]:
        """What is known of each declared source, by its declared URL."""
        return {source.url: declared_record(source, self._known) for source in self._sources}

    @property
    def _body_or_none(self) -> bytes:
        return read_body(self._file) if self._file.exists() else b""

    def _write(self, body: bytes, edit: Edit) -> None:
        """Replace the file, once the records of sources with a new URL are renamed.

        So the file is left as it is if the state fails.
        """
        new = edit_sources(self._file, body, edit)
        with open_output(str(self._file), replace=True) as file:
            file.write(new)
            found = ((self._known.find(url), to) for url, to in edit.rewritten.items())
            spellings = {record.url: to for record, to in found if record}
            if self._state and spellings:
                self._state.sources.rename(spellings)


def _is_lost(record: SourceRecord, failing: float | None) -> bool:
    if failing is None:
        return record.due_at == NEVER
    return record.failures > 0 and record.failed_for >= failing
