"""What ``scrapy sources`` changes: sources are resumed, and added to the file.

All else in the file is the operator's; the lines to change there are told.
"""

from __future__ import annotations

import difflib
import json
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.urls import canonical_url, host_of
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.sources.loading import declarations, load_sources, read_body
from walsh_scrapy.sources.source import Source, SourcesError, declared_urls, target_url
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.discover.report import source_table, toml_string
from walsh_scrapy.tools.files import open_output
from walsh_scrapy.tools.hosts import on_hold

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.sources.overview import SourceRow

#: Seconds of failures in a row after which a source is probably gone.
LONG_FAILING: Final = 60 * 86_400.0


class SourceChanges:
    """Changes what the state knows of sources; yields a line for every source.

    A URL may be spelled as it is declared, or in any way with the same canonical URL. Each method
    raises UnknownSource for a URL that is neither in the state nor declared in ``file``; the file
    is only read when it is needed.
    """

    def __init__(self, state: State | None, file: str, options: Options) -> None:
        self._state = state
        self._file = file
        self._options = options

    def resume(self, url: str) -> Iterator[str]:
        """Make a source due that is gone or failing; the next visit reads any source as a whole."""
        for each in self._find(url):
            is_resumed = self._state is not None and self._state.sources.resume(each)
            self._forget_llms_txt(each)
            if is_resumed:
                held = self._hold(each)
                due = f"due, but {held};" if held else "due now, and"
                yield f"{printable(each)} is {due} its failures are counted from 0"
                continue
            due = f"it is due {self._due(each)}, and then read as a whole"
            yield f"{printable(each)} is neither gone nor failing: {due}"

    def _due(self, url: str) -> str:
        held = self._hold(url)
        source, revisit = self._declared.get(canonical_url(url)), self._options.min_revisit
        least = source.revisit_interval(revisit) if source else revisit
        found = self._state.sources.due(url, least, self._state.now()) if self._state else None
        if found is None or found.at <= 0.0:
            return f"as before, but {held}" if held else "now, as before"
        due = f"{format_moment(found.at)}, as before"
        return f"{due}, but {held}" if held else due

    def _hold(self, url: str) -> str:
        """Say until when the host of a source is on hold; nothing if it is not."""
        if self._state is None:
            return ""
        record = self._state.sources.find(url)
        address = record.address if record else url
        found = self._state.hosts.find(self._options.pace_by.unit(address))
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


class UnknownSource(CommandError):
    """A URL is not that of any source; the message is one line and suggests the nearest."""


def find_sources(url: str, known: Collection[str]) -> list[str]:
    """Return the known URLs that ``url`` means: itself, or all with the same canonical URL.

    Raises UnknownSource if there is none.
    """
    if url in known:
        return [url]
    canonical = canonical_url(url)
    if same := [each for each in known if canonical_url(each) == canonical]:
        return same
    near = nearest(url, known)
    hint = f"; did you mean {near}?" if near else "; `scrapy sources --all` lists all sources"
    raise UnknownSource(f"{url} is not a source, declared or in the state{hint}")


def nearest(url: str, known: Collection[str]) -> str | None:
    """Return the known URL most similar to ``url``, by host first; None if no host is similar."""
    hosts: dict[str, list[str]] = {}
    for each in known:
        hosts.setdefault(host_of(each), []).append(each)
    for near in difflib.get_close_matches(host_of(url), hosts, n=1):
        return difflib.get_close_matches(url, hosts[near], n=1, cutoff=0.0)[0]
    return None


class SourcesFile:
    """The sources file as an operator has it: what may change in it, and what is added at its end.

    Methods raise SourcesError for a file that cannot be read, CommandError for one that cannot be
    written.
    """

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def undeclared(self, urls: Iterable[str]) -> list[str]:
        """Return the URLs that the file does not declare in any spelling, each once.

        A file that is not there declares none.
        """
        known = {canonical_url(each.source.url) for each in declarations(self._file, self._body)}
        new: dict[str, str] = {}
        for url in urls:
            if canonical_url(url) not in known:
                new.setdefault(canonical_url(url), url)
        return list(new.values())

    def add(self, sources: Sequence[Source]) -> Iterator[str]:
        """Declare sources, at the end of the file; it is made if there is none.

        What is declared already stays as it is. Yields a line for each. Raises CommandError for a
        file of a format that is only read: it says what to add there.
        """
        by_url = {source.url: source for source in sources}
        new = [by_url[url] for url in self.undeclared(by_url)]
        if new:
            self._append(new)
        for source in by_url.values():
            kind = f" (kind {source.kind!r})" if source.kind != "feed" else ""
            how = "is declared" if source in new else "was declared before"
            yield f"{source.url}{kind} {how} in {self._file}"

    def lines_to_change(self, rows: Iterable[SourceRow]) -> Iterator[str]:
        """Yield what the operator may change: sources to delete, and lines to write for others.

        These are gone (410), failing for long, or moved for good. ``rows`` are those of the file.
        """
        rows = list(rows)
        taken = {canonical_url(row.record.url) for row in rows}
        found = {row.record.url: told for row in rows if (told := _to_change(row, taken))}
        if not found:
            return
        places = defaultdict[str, list[str]](list)
        for place, source in declarations(self._file, self._body):
            places[canonical_url(source.url)].append(place)
        yield f"to change in {self._file}:"
        for url, (why, to) in found.items():
            where = ", ".join(places[canonical_url(url)])
            yield printable(f"  {url} ({where}) {why}")
            if to:
                yield f"    {self._as_declared(to)}"

    @property
    def _body(self) -> bytes:
        return read_body(self._file) if self._file.exists() else b""

    @property
    def _ending(self) -> str:
        return self._file.suffix.lower()

    def _as_declared(self, url: str) -> str:
        """Return a URL as a line of the file has it."""
        if self._ending == ".toml":
            return f"url = {toml_string(url)}"
        if self._ending == ".json":
            return json.dumps(url)
        return url if self._ending == ".txt" else f'xmlUrl="{url.replace("&", "&amp;")}"'

    def _append(self, sources: Sequence[Source]) -> None:
        """Write sources behind all that is in the file, which stays to the byte."""
        file, body = self._file, self._body
        pages = [each.url for each in sources if each.kind != "feed"]
        if pages and self._ending == ".txt":
            raise CommandError(
                f"{file}: a list of URLs declares feeds, and {pages[0]} is of kind 'llms'; use a "
                ".toml file"
            )
        if self._ending not in (".toml", ".txt"):
            add = " ".join(map(self._block, sources))
            raise CommandError(f"{file} is only read; to declare what was found, add to it: {add}")
        wanted = [each.source for each in declarations(file, body)]
        wanted += (source if self._ending == ".toml" else Source(source.url) for source in sources)
        end = "\r\n" if b"\r\n" in body else "\n"
        written = body.decode()
        for source in sources:
            if written and not written.endswith(("\n", "\r")):
                written += end
            written += end if written and self._ending == ".toml" else ""
            written += self._block(source).replace("\n", end) + end
        try:
            is_declared = [each.source for each in declarations(file, written.encode())] == wanted
        except SourcesError:  # its sources are a list
            is_declared = False
        if not is_declared:
            add = " ".join(map(self._block, sources)).replace("\n", " ")
            raise CommandError(f"{file}: what was found cannot be added at its end: {add}")
        with open_output(str(file), replace=True) as opened:
            opened.write(written.encode())

    def _block(self, source: Source) -> str:
        """Return what declares a source."""
        if self._ending == ".toml":
            return "\n".join(source_table(source))
        if self._ending == ".txt":
            return source.url
        if self._ending == ".json":
            given = {"url": source.url, "kind": source.kind, "name": source.name}
            return json.dumps({name: value for name, value in given.items() if value})
        from walsh_scrapy.tools.feeds import outline_of

        return outline_of(source, source.name or source.url)[1]


def _to_change(row: SourceRow, taken: Collection[str]) -> tuple[str, str] | None:
    """Return why a source is to be changed in the file, and its new URL if it is not to go.

    ``taken`` are the canonical URLs that are declared.
    """
    record, move = row.record, row.record.move
    asked = f"last asked {format_moment(record.fetched_at or 0.0)}"
    if row.due.rule == "gone":
        return f"is gone ({record.detail or 'it answered 410'}, {asked}): delete it", ""
    if record.failures and record.failed_for >= LONG_FAILING:
        since = format_moment(record.failing_since or 0.0)
        return f"fails since {since} ({record.detail}, {asked}): delete it", ""
    if move is None or not move.is_settled or move.failing_since is not None:
        return None
    try:
        to = target_url(move.to)
    except SourcesError:
        return None
    if canonical_url(to) in taken and canonical_url(to) != canonical_url(record.url):
        return f"moved to {to}, which is declared too: delete it", ""
    return "moved for good; write:", to
