"""The four ways to write sources down, read into what they say and where (TOML, OPML, JSON, list).

What is said is not judged here: `walsh_scrapy.sources` does that.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from walsh_scrapy.sources.opml import Outline, read_opml

_COMMENT: Final = re.compile(r"(?:^|\s+)#.*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class UnreadableSources(ValueError):
    """A file that is not what its ending says; the message is the reason."""


class Declared(NamedTuple):
    """One source as its file has it: the place, the value, and the web page it belongs to."""

    where: str
    value: Any
    page: str | None = None


class Reading(NamedTuple):
    """What a file declares, in its order; reading ``entries`` may raise as its reader does.

    Programs write exported files: their operator cannot help a wrong entry, and may not even see
    it. ``remark`` says what is wrong with a file that can be read all the same.
    """

    entries: Iterable[Declared]
    is_exported: bool = False
    remark: str | None = None


Reader = Callable[[bytes], Reading]


def reader_for(ending: str) -> Reader | None:
    """Return what reads files with this ending (`.toml`), or None.

    Readers raise UnreadableSources or OpmlError.
    """
    return _READERS.get(ending.lower())


def read_toml(body: bytes) -> Reading:
    """Read `[[source]]` tables."""
    try:
        document = tomllib.loads(_text(body))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableSources(f"it is not TOML: {error}") from error
    return Reading(_entries(document, "[[source]]"))


def read_json(body: bytes) -> Reading:
    """Read a list of URLs and objects, or an object with such a list as its `source`."""
    try:
        document = json.loads(_text(body))
    except (ValueError, RecursionError) as error:
        raise UnreadableSources(f"it is not JSON: {error}") from error
    tables = document if isinstance(document, dict) else {"source": document}
    return Reading(_entries(tables, '"source"'))


def read_list(body: bytes) -> Reading:
    """Read one URL a line; `#` at the start of a line or after a space begins a comment."""
    return Reading(_lines(_text(body)))


def read_opml_file(body: bytes) -> Reading:
    """Read subscriptions: `xmlUrl`, name, folders and categories as tags, `htmlUrl` as page."""
    opml = read_opml(body)
    remark = None
    if not opml.is_whole:
        remark = "it has no end (</opml>), so sources may be missing; export it again"
    return Reading(map(_subscription, opml.outlines), is_exported=True, remark=remark)


def _subscription(outline: Outline) -> Declared:
    name = outline.name
    kind = "llms" if outline.kind == "llms" else "feed"
    return Declared(
        f"outline {outline.number}" + (f" ({name[:40]!r})" if name else ""),
        {"url": outline.url, "kind": kind, "name": name, "tags": [*outline.tags]},
        outline.attributes.get("htmlurl") or None,
    )


def _lines(text: str) -> Iterator[Declared]:
    for number, line in enumerate(_LINE_END.split(text), 1):
        if url := _COMMENT.sub("", line).strip():
            if len(url.split()) > 1:
                raise UnreadableSources(f"line {number}: one URL a line; a comment begins with #")
            yield Declared(f"line {number}", {"url": url})


def _entries(document: dict[str, Any], spelled: str) -> Iterator[Declared]:
    for key in document:
        if key != "source":
            raise UnreadableSources(f"unknown key {key[:40]!r} at the top; sources are {spelled}")
    listed = document.get("source", [])
    if not isinstance(listed, list):
        raise UnreadableSources(f"its sources are no list; write {spelled} and a table or a list")
    for number, value in enumerate(listed, 1):
        yield Declared(f"entry {number}", {"url": value} if isinstance(value, str) else value)


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise UnreadableSources(f"line {line}: it is not UTF-8; save it as UTF-8") from error


_READERS: Final[dict[str, Reader]] = {
    ".toml": read_toml,
    ".json": read_json,
    ".txt": read_list,
    ".opml": read_opml_file,
    ".xml": read_opml_file,
}
