"""Finding the sources that a URL means, and adding sources to the sources file."""

from __future__ import annotations

import difflib
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.feeds.sources.loading import PlacedSource, open_sources, parse_declarations
from walsh_scrapy.feeds.sources.source import Source, SourcesError
from walsh_scrapy.policy.urls import canonical_url, host_of
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import CommandError, Output
from walsh_scrapy.tools.offers import source_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


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

    def add(self, sources: Sequence[Source]) -> Iterator[str]:
        """Append sources to the file, which is created if needed; yield a line for each source.

        Sources that the file declares already are skipped. Raises CommandError for a file that is
        not .toml or .txt; the message then has the sources to add by hand.
        """
        by_url = {source.url: source for source in sources}
        new = [by_url[url] for url in self.undeclared(by_url)]
        if new:
            self._append(new)
        for source in by_url.values():
            kind = f" (kind {source.kind!r})" if source.kind != "feed" else ""
            if source in new:
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
        return list(parse_declarations(self._file, BytesIO(body), []))

    @property
    def _extension(self) -> str:
        return self._file.suffix.lower()

    def _append(self, sources: Sequence[Source]) -> None:
        """Write sources at the end of the file, without changing a byte before them."""
        body = self._body
        pages = [source.url for source in sources if source.kind != "feed"]
        if pages and self._extension == ".txt":
            raise CommandError(
                f"{self._file}: a .txt file can only have feeds, but {pages[0]} has the kind "
                "'llms'; use a .toml file"
            )
        if self._extension not in (".toml", ".txt"):
            listing = ", ".join(f"{source.url} (kind {source.kind!r})" for source in sources)
            raise CommandError(f"{self._file} must be changed by hand; add: {listing}")
        expected = [placed.source for placed in self._parse(body)]
        line_end = "\r\n" if b"\r\n" in body else "\n"
        text = body.decode()
        if text and not text.endswith(("\n", "\r")):
            text += line_end
        if self._extension == ".toml":
            expected += sources
            blocks = [line_end.join((*source_table(source), "")) for source in sources]
            text += line_end.join(["", *blocks] if text else blocks)
        else:
            expected += (Source(source.url) for source in sources)
            blocks = [source.url + line_end for source in sources]
            text += "".join(blocks)
        try:
            is_declared = [placed.source for placed in self._parse(text.encode())] == expected
        except SourcesError:  # for example, if the file has `source = [...]`
            is_declared = False
        if not is_declared:
            lines = " ".join("".join(blocks).split())
            raise CommandError(f"{self._file} must be changed by hand; add: {lines}")
        with Output(str(self._file), replaces=True).open() as output:
            output.write(text.encode())
