"""Editing a sources file: sources added, removed, and given another URL; all else stays as it is.

TOML keeps its comments, order and spelling; OPML its attributes, order and comments; a list of URLs
all other lines. JSON has no comments, and keeps its order and indentation.

The edited file is read again before anything is written. If it does not declare exactly what was
asked for, nothing is changed, and the operator is told to edit it by hand.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Whitespace

from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources.loading import declarations
from walsh_scrapy.sources.opml import write_opml
from walsh_scrapy.sources.readers import text_of
from walsh_scrapy.sources.source import Source, SourcesError, UnreadableSources, target_url

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path


_MARK: Final = b"\xef\xbb\xbf"
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_INDENTED: Final = re.compile(r"\n([ \t]+)")


@dataclass(slots=True)
class FileChanges:
    """What to change in one file; numbers are those of ``Declaration``."""

    added: list[Source] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    rewritten: dict[int, str] = field(default_factory=dict)  #: the new URL by number


def write_toml(body: bytes, changes: FileChanges) -> bytes:
    """Change `[[source]]` tables, or the entries of a list."""
    text = text_of(body)
    try:
        document: Any = tomlkit.parse(text)
        listed = document.get("source", [])
        _rewrite(listed, changes)
        for number in sorted(changes.removed, reverse=True):
            if isinstance(listed, AoT):
                _keep_comments(listed, number - 1)
            del listed[number - 1]
        if "source" in document and not isinstance(listed, AoT):
            listed.extend(map(_table, changes.added))
            changes = FileChanges()
        written = document.as_string()
        for source in changes.added:
            table = tomlkit.dumps({"source": [_table(source)]})
            written = f"{written.rstrip()}\n\n{table}" if written.strip() else table
    except TOMLKitError as error:
        raise UnreadableSources(str(error)) from error
    return _encode(written, body)


def write_json(body: bytes, changes: FileChanges) -> bytes:
    """Change the list of sources."""
    text = text_of(body)
    document = json.loads(text)
    listed = document.setdefault("source", []) if isinstance(document, dict) else document
    _rewrite(listed, changes)
    for number in sorted(changes.removed, reverse=True):
        del listed[number - 1]
    listed += map(_table, changes.added)
    indent = _INDENTED.search(text)
    written = json.dumps(document, ensure_ascii=False, indent=indent[1] if indent else None)
    end = "\n" if text.endswith("\n") else ""
    return _encode(written + end, body)


def write_list(body: bytes, changes: FileChanges) -> bytes:
    """Change lines; the comment behind a URL that is rewritten stays."""
    text = text_of(body)
    lines = [line for line in _LINE.findall(text) if line]
    for number, url in changes.rewritten.items():
        line = lines[number - 1]
        lines[number - 1] = line.replace(line.split()[0], url, 1)
    kept = [line for number, line in enumerate(lines, 1) if number not in changes.removed]
    if kept and changes.added and not kept[-1].endswith(("\n", "\r")):
        kept[-1] += "\n"
    kept += (f"{source.url}\n" for source in changes.added)
    return _encode("".join(kept), body)


def _rewrite(listed: Any, changes: FileChanges) -> None:  # noqa: ANN401 - tomlkit's or a list
    for number, url in changes.rewritten.items():
        if isinstance(listed[number - 1], str):
            listed[number - 1] = url
        else:
            listed[number - 1]["url"] = url


def _table(source: Source) -> dict[str, str]:
    table = {"url": source.url}
    if source.kind != "feed":
        table["kind"] = source.kind
    if source.name:
        table["name"] = source.name
    return table


def _keep_comments(tables: AoT, index: int) -> None:
    """Move the comments behind the last key of a table to where they stay if it is deleted.

    They are mostly about the next table, and stand before its header.
    """
    body = tables[index].value.body
    trailing = ""
    while body and body[-1][0] is None:
        trailing = body.pop()[1].as_string() + trailing
    if index + 1 < len(tables):
        following = tables[index + 1].trivia
        following.indent = trailing + following.indent
    elif index:
        tables[index - 1].value.body.append((None, Whitespace(trailing)))


def _encode(written: str, body: bytes) -> bytes:
    """Return a text as UTF-8, with the line ends and the byte order mark that ``body`` has."""
    if b"\r\n" in body:
        written = written.replace("\r\n", "\n").replace("\n", "\r\n")
    return (_MARK if body.startswith(_MARK) else b"") + written.encode()


#: By the ending of a file. They raise UnreadableSources for a file that can be read, but not be
#: written in the same way.
_WRITERS: Final[dict[str, Callable[[bytes, FileChanges], bytes]]] = {
    ".toml": write_toml,
    ".json": write_json,
    ".txt": write_list,
    ".opml": write_opml,
    ".xml": write_opml,
}


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What to change. URLs are those of ``load_sources``; any spelling of one means the source."""

    added: Sequence[Source] = ()
    removed: Collection[str] = ()
    rewritten: Mapping[str, str] = field(default_factory=dict)  #: the new URL by the old one


def edit_sources(file: Path, body: bytes, edit: Edit) -> bytes:
    """Return what ``file`` contains after the edit, if it contains ``body`` now.

    A source that is declared several times is removed, or rewritten, everywhere. A list of URLs
    (`.txt`) cannot hold names, so they are left out of it. Raises SourcesError if the file cannot
    be read, cannot hold a source, or would declare none any more.
    """
    removed = set(map(canonical_url, edit.removed))
    rewritten = {canonical_url(old): target_url(new) for old, new in edit.rewritten.items()}
    wanted: list[Source] = []
    changes = FileChanges(added=[_storable(file, source) for source in edit.added])
    for number, _place, source in declarations(file, body):
        canonical = canonical_url(source.url)
        if canonical in removed:
            changes.removed.add(number)
        elif canonical in rewritten:
            changes.rewritten[number] = rewritten[canonical]
            wanted.append(replace(source, url=rewritten[canonical]))
        else:
            wanted.append(source)
    wanted += changes.added
    if not wanted:
        raise SourcesError(
            f"{file}: it would declare no source any more, and a crawl refuses such a file"
        )
    try:
        new = _WRITERS[file.suffix.lower()](body, changes)
    except UnreadableSources as error:
        raise SourcesError(f"{file}: it cannot be edited: {error}") from None
    if [source for _number, _place, source in declarations(file, new)] != wanted:
        raise SourcesError(
            f"{file}: it cannot be edited without changing other sources; edit it by hand"
        )
    return new


def _storable(file: Path, source: Source) -> Source:
    """Return what of a source the format of ``file`` can hold. Raises SourcesError."""
    ending = file.suffix.lower()
    if ending == ".txt" and source.kind != "feed":
        raise SourcesError(
            f"{file}: a list of URLs declares feeds, and {source.url} is of kind {source.kind!r}; "
            "use a .toml file"
        )
    name = None if ending == ".txt" else source.name
    if name is None and ending in (".opml", ".xml"):
        name = source.url  # an outline needs a text
    return Source(source.url, source.kind, name)
