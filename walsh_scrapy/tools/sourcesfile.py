"""Finding the sources that a URL means, and adding sources to the sources file."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.feeds.sources.loading import (
    EXTENSIONS,
    SKIPPED,
    PlacedSource,
    Repetitions,
    open_sources,
    parse_declarations,
    read_declarations,
)
from walsh_scrapy.feeds.sources.source import Source, SourcesError
from walsh_scrapy.policy.urls import canonical_url, host_of
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import CommandError, Output, WrongCall
from walsh_scrapy.tools.offers import source_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

#: A message with sources to add by hand is cut at this length, because a list may have hundreds.
_MAX_ADVICE_CHARACTERS: Final = 2000


class UnknownSource(CommandError):
    """No source has this URL; the message suggests the most similar one."""


def find_sources(url: str, sources: Collection[str]) -> list[str]:
    """Return ``url`` if it is the URL of a source, or else all with the same canonical URL.

    Raises UnknownSource if there is none.
    """
    if url in sources:
        return [url]
    canonical = canonical_url(url)
    if same := [source for source in sources if canonical_url(source) == canonical]:
        return same
    near = nearest(url, sources)
    hint = (
        f"; did you mean {near}?"
        if near
        else f"; `{program_name()} sources --all` lists all sources"
    )
    raise UnknownSource(f"{url} is not a source{hint}")


def nearest(url: str, sources: Collection[str]) -> str | None:
    """Return the most similar URL on the most similar host; None if no host is similar."""
    hosts: dict[str, list[str]] = {}
    for source in sources:
        hosts.setdefault(host_of(source), []).append(source)
    for near in difflib.get_close_matches(host_of(url), hosts, n=1):
        return difflib.get_close_matches(url, hosts[near], n=1, cutoff=0.0)[0]
    return None


@dataclass(slots=True)
class Listing:
    """The sources that some files list, without repetitions, and what of them is not added."""

    sources: list[Source]
    repeated: list[str]  #: a line for each repeated declaration
    left_out: list[str]  #: a line for each source that cannot be requested
    warnings: list[str]  #: about the files


def is_file_name(target: str) -> bool:
    """Return True for an argument that names a file, also a missing one; False for a URL."""
    if "://" in target:
        return False
    return Path(target).suffix.lower() in EXTENSIONS or os.path.lexists(target)


def read_listing(names: Iterable[str]) -> Listing:
    """Read the sources of files. Raises WrongCall for a missing file, and SourcesError."""
    repetitions = Repetitions()
    sources: dict[str, Source] = {}
    listing = Listing([], [], [], [])
    for name in names:
        file = Path(name)
        if not os.path.lexists(file):
            raise WrongCall(f"{name}: there is no such file (a URL begins with https://)")
        warnings: list[str] = []
        for placed in read_declarations(file, warnings):
            key = canonical_url(placed.source.url)
            first = sources.get(key)
            sources[key] = repetitions.merge(first, placed) if first else placed.source
            if first:
                listing.repeated.append(f"{file}: {placed.place} repeats {first.url}")
        for warning in warnings:
            if warning.startswith(SKIPPED):
                listing.left_out.append(f"{file}: left out {warning.removeprefix(SKIPPED)}")
            else:
                listing.warnings.append(f"{file}: {warning}")
    listing.sources = list(sources.values())
    return listing


class SourcesFile:
    """A sources file, at the end of which sources are added.

    The methods raise SourcesError if the file cannot be read, and CommandError if it cannot be
    written.
    """

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def undeclared(self, urls: Iterable[str]) -> list[str]:
        """Return the URLs that the file does not declare in any spelling, without duplicates.

        A missing file declares nothing.
        """
        declared = {canonical_url(placed.source.url) for placed in self._parse(self._body)}
        new: dict[str, str] = {}
        for url in urls:
            if canonical_url(url) not in declared:
                new.setdefault(canonical_url(url), url)
        return list(new.values())

    def merge(self, listing: Listing) -> Iterator[str]:
        """Add the sources of a listing; yield a line for each declaration, and one with counts."""
        number = len(self.undeclared(source.url for source in listing.sources))
        yield from self.add(listing.sources)
        yield from listing.repeated
        yield from listing.left_out
        if number and self._extension == ".txt":
            yield f"{self._file} has no names and tags; a .toml file keeps them"
        yield (
            f"{count_of(number, 'source')} added, {len(listing.sources) - number} already in "
            f"{self._file}, {len(listing.repeated)} repeated, {len(listing.left_out)} left out"
        )

    def add(self, sources: Sequence[Source]) -> Iterator[str]:
        """Append sources to the file, which is created if needed; yield a line for each source.

        Sources that the file declares already are skipped. Raises CommandError for a file that is
        not .toml or .txt; the message then has the sources to add by hand.
        """
        by_url = {source.url: source for source in sources}
        new = {url: by_url[url] for url in self.undeclared(by_url)}
        if new:
            self._append(list(new.values()))
        for source in by_url.values():
            kind = f" (kind {source.kind!r})" if source.kind != "feed" else ""
            if source.url in new:
                yield f"added {source.url}{kind} to {self._file}"
            else:
                yield f"{source.url}{kind} is already in {self._file}"

    @property
    def _body(self) -> bytes:
        if not self._file.exists():
            return b""
        with open_sources(self._file) as file:
            return file.read()

    def _parse(self, body: bytes) -> list[PlacedSource]:
        """Return the declarations in a file with this body."""
        if not body and self._extension in (".opml", ".xml"):  # no document, so no OPML either
            return []
        return list(parse_declarations(self._file, BytesIO(body), []))

    @property
    def _extension(self) -> str:
        return self._file.suffix.lower()

    def _append(self, sources: Sequence[Source]) -> None:
        """Write sources at the end of the file, without changing a byte before them."""
        body = self._body
        if self._extension == ".txt":
            for source in sources:
                if source.kind != "feed" or source.every or source.delay:
                    raise CommandError(
                        f"{self._file}: a .txt file has only URLs of feeds, but {source.url} has a "
                        "kind, an every or a delay; use a .toml file"
                    )
        if self._extension not in (".toml", ".txt"):
            urls = [f"{source.url} (kind {source.kind!r})" for source in sources]
            raise self._by_hand(", ".join(urls))
        before = [placed.source for placed in self._parse(body)]
        line_end = "\r\n" if b"\r\n" in body else "\n"
        text = body.decode()
        if text and not text.endswith(("\n", "\r")):
            text += line_end
        if self._extension == ".toml":
            blocks = [line_end.join((*source_table(source), "")) for source in sources]
            text += line_end.join(["", *blocks] if text else blocks)
        else:
            blocks = [source.url + line_end for source in sources]
            text += "".join(blocks)
        try:
            after = [placed.source for placed in self._parse(text.encode())]
        except SourcesError:  # for example, if the file has `source = [...]`
            after = []
        if not self._is_appended(sources, before, after):
            raise self._by_hand(" ".join("".join(blocks).split()))
        with Output(str(self._file), replaces=True).open() as output:
            output.write(text.encode())

    def _is_appended(
        self, sources: Sequence[Source], before: Sequence[Source], after: Sequence[Source]
    ) -> bool:
        """Return True if ``after`` is ``before`` and the sources, as far as the file can say them.

        A source without `every` and `delay` may get them from the defaults of the file.
        """
        if len(after) != len(before) + len(sources) or after[: len(before)] != before:
            return False
        pairs = zip(sources, after[len(before) :], strict=True)
        if self._extension == ".txt":
            return all(source.url == declared.url for source, declared in pairs)
        return all(
            declared
            == replace(
                source,
                page=None,
                folders=(),
                every=source.every or declared.every,
                delay=source.delay or declared.delay,
            )
            for source, declared in pairs
        )

    def _by_hand(self, text: str) -> CommandError:
        """Return the error for a file that cannot be changed, with the text to add."""
        more = " ..." if len(text) > _MAX_ADVICE_CHARACTERS else ""
        shown = text[:_MAX_ADVICE_CHARACTERS]
        return CommandError(f"{self._file} must be changed by hand; add: {shown}{more}")
