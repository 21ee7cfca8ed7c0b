"""Readers of the four file formats: TOML, JSON, a plain list of URLs, and OPML.

They return each source as the file has it, with its place; `loading` checks it.
"""

import json
import re
import tomllib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from walsh_scrapy.sources.source import UnreadableSources

if TYPE_CHECKING:
    from walsh_scrapy.sources.opml import Outline

_COMMENT: Final = re.compile(r"(?:^|\s+)#.*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class RawSource(NamedTuple):
    """One source as its file has it, unchecked."""

    place: str  #: "line 3", "entry 3" or "outline 3"
    value: Any
    page: str | None = None  #: the web page it belongs to
    folders: tuple[str, ...] = ()  #: of a feed reader, the outermost first


class Contents(NamedTuple):
    """What a file declares, in its order. Iterating over ``sources`` may raise as the reader does.

    ``is_exported`` is True for files that programs write, in which an operator cannot correct a
    source. ``warning`` says what is wrong with a file that can be read nevertheless.
    """

    sources: Iterable[RawSource]
    is_exported: bool = False
    warning: str | None = None


Reader = Callable[[bytes], Contents]


def reader_for(ending: str) -> Reader | None:
    """Return the reader of files with this ending (`.toml`), or None.

    Readers raise UnreadableSources.
    """
    return _READERS.get(ending.lower())


def read_toml(body: bytes) -> Contents:
    """Read `[[source]]` tables."""
    try:
        document = tomllib.loads(text_of(body))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableSources(f"it is not TOML: {error}") from error
    return Contents(_entries(document, "[[source]]"))


def read_json(body: bytes) -> Contents:
    """Read a list of URLs and objects, or an object with such a list as its `source`."""
    try:
        document = json.loads(text_of(body))
    except (ValueError, RecursionError) as error:
        raise UnreadableSources(f"it is not JSON: {error}") from error
    tables = document if isinstance(document, dict) else {"source": document}
    return Contents(_entries(tables, '"source"'))


def read_list(body: bytes) -> Contents:
    """Read one URL a line; `#` at the start of a line or after a space begins a comment."""
    return Contents(_lines(text_of(body)))


def read_opml_file(body: bytes) -> Contents:
    """Read subscriptions: `xmlUrl`, name, folders and categories as tags, `htmlUrl` as page.

    Attributes of our own namespace are `every` and `pause`.
    """
    # It imports two parsers of XML, and few operators declare their sources so.
    from walsh_scrapy.sources.opml import read_opml  # noqa: PLC0415

    opml = read_opml(body)
    warning = None
    if not opml.is_whole:
        warning = "it has no end (</opml>), so sources may be missing; export it again"
    return Contents(map(_subscription, opml.outlines), is_exported=True, warning=warning)


def _subscription(outline: "Outline") -> RawSource:
    name = outline.name
    kind = "llms" if outline.kind == "llms" else "feed"
    return RawSource(
        f"outline {outline.number}" + (f" ({name[:40]!r})" if name else ""),
        {
            "url": outline.url,
            "kind": kind,
            "name": name,
            "tags": [*outline.tags],
            "every": outline.own("every"),
            "pause": outline.own("pause"),
        },
        outline.attributes.get("htmlurl") or None,
        tuple(dict.fromkeys(outline.folders)),
    )


def _lines(text: str) -> Iterator[RawSource]:
    for number, line in enumerate(_LINE_END.split(text), 1):
        if url := _COMMENT.sub("", line).strip():
            if len(url.split()) > 1:
                raise UnreadableSources(f"line {number}: one URL a line; a comment begins with #")
            yield RawSource(f"line {number}", {"url": url})


def _entries(document: dict[str, Any], notation: str) -> Iterator[RawSource]:
    for key in document:
        if key != "source":
            raise UnreadableSources(f"unknown key {key[:40]!r} at the top; sources are {notation}")
    listed = document.get("source", [])
    if not isinstance(listed, list):
        raise UnreadableSources(
            f"its sources are not a list; write {notation} and a table or a list"
        )
    for number, value in enumerate(listed, 1):
        table = {"url": value} if isinstance(value, str) else value
        yield RawSource(f"entry {number}", table)


def text_of(body: bytes) -> str:
    """Return a file as text, without a byte order mark. Raises UnreadableSources."""
    body = body.removeprefix(BOM_UTF8)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = len(_LINE_END.split(body[: error.start].decode("utf-8")))
        raise UnreadableSources(f"line {line}: it is not UTF-8; save it as UTF-8") from error


_READERS: Final[dict[str, Reader]] = {
    ".toml": read_toml,
    ".json": read_json,
    ".txt": read_list,
    ".opml": read_opml_file,
    ".xml": read_opml_file,
}
