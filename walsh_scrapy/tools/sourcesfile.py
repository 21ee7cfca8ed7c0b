"""The sources file: which source a URL means, and sources added at its end."""

from __future__ import annotations

import difflib
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.policy.urls import canonical_url, host_of
from walsh_scrapy.programname import program_name
from walsh_scrapy.sources.loading import PlacedSource, open_sources, parse_declarations
from walsh_scrapy.sources.source import Source, SourcesError
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.files import Output
from walsh_scrapy.tools.offers import source_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


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
    hint = f"; did you mean {near}?" if near else f"; `{program_name()} sources --all` lists all"
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
    """The sources file: sources are added at its end, and all else in it stays as it is.

    Methods raise SourcesError for a file that cannot be read, CommandError for one that cannot be
    written.
    """

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def undeclared(self, urls: Iterable[str]) -> list[str]:
        """Return the URLs that the file does not declare in any spelling, each once.

        A file that is not there declares none.
        """
        known = {canonical_url(each.source.url) for each in self._declared(self._body)}
        new: dict[str, str] = {}
        for url in urls:
            if canonical_url(url) not in known:
                new.setdefault(canonical_url(url), url)
        return list(new.values())

    def add(self, sources: Sequence[Source]) -> Iterator[str]:
        """Declare sources, at the end of the file; it is made if there is none.

        Declared ones stay as they are. Yields a line for each. Raises CommandError for a file of a
        format that is only read: it has the lines to add.
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
        with open_sources(self._file) as opened:
            return opened.read()

    def _declared(self, body: bytes) -> list[PlacedSource]:
        """Return the declarations of the file with this body."""
        return list(parse_declarations(self._file, BytesIO(body), []))

    @property
    def _ending(self) -> str:
        return self._file.suffix.lower()

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
            found = ", ".join(f"{each.url} (kind {each.kind!r})" for each in sources)
            raise CommandError(f"{file} is only read; declare there: {found}")
        wanted = [each.source for each in self._declared(body)]
        end = "\r\n" if b"\r\n" in body else "\n"
        written = body.decode()
        if written and not written.endswith(("\n", "\r")):
            written += end
        if self._ending == ".toml":
            wanted += sources
            blocks = [end.join((*source_table(each), "")) for each in sources]
            written += end * bool(written) + end.join(blocks)
        else:
            wanted += (Source(each.url) for each in sources)
            blocks = [each.url + end for each in sources]
            written += "".join(blocks)
        try:
            is_declared = [each.source for each in self._declared(written.encode())] == wanted
        except SourcesError:  # its sources are a list
            is_declared = False
        if not is_declared:
            add = " ".join("".join(blocks).split())
            raise CommandError(f"{file}: the new sources cannot be added at its end: {add}")
        with Output(str(file), replaces=True).open() as opened:
            opened.write(written.encode())
