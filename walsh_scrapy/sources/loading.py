"""Loading a sources file: each declaration is checked, and each target is kept once (R6).

A file with a wrong declaration is refused as a whole, with one line: the place and the reason. In
a list that a program exported (OPML), a source that cannot be requested is left out with a warning.

Files are TOML, JSON, a plain list of URLs, or OPML. A large list is read as a stream, line by line,
and a TOML file table by table where it surely can be split so; it is never in memory as a whole.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
import tomllib
from codecs import BOM_UTF8
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources.source import Kind, Source, SourcesError, UnreadableSources, target_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from walsh_scrapy.sources.opml import Outline

_KINDS: Final = ("feed", "llms")
_KEYS: Final = ("url", "kind", "name", "tags", "every", "pause")
#: A robots.txt is obeyed for a day. With a longer pause it could be out of date whenever its host
#: may be asked, so that nothing else would ever be asked for.
LONGEST_PAUSE: Final = timedelta(hours=12)

_COMMENT: Final = re.compile(r"(?:^|\s+)#.*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_HEADER: Final = "[[source]]"
# A string without escapes, or a list of them, which TOML and JSON write alike.
_STRING: Final = r'"[^"\\\x00-\x1f\x7f]*"'
_PLAIN_LINE: Final = re.compile(rf"([A-Za-z0-9_-]+) = ({_STRING}|\[{_STRING}(?:, ?{_STRING})*\])")

_log = logging.getLogger(__name__)


class Declaration(NamedTuple):
    """One source, and where the file declares it."""

    place: str  #: "line 3", "entry 3" or "outline 3"
    source: Source


class _RawSource(NamedTuple):
    """One source as its file has it, unchecked."""

    place: str  #: "line 3", "entry 3" or "outline 3"
    value: Any
    page: str | None = None  #: the web page it belongs to
    folders: tuple[str, ...] = ()  #: of a feed reader, the outermost first


class _Contents(NamedTuple):
    """What a file declares, in its order. Iterating over ``sources`` may raise as the reader does.

    ``is_exported`` is True for files that programs write, in which an operator cannot correct a
    source. ``warning`` says what is wrong with a file that can be read nevertheless.
    """

    sources: Iterable[_RawSource]
    is_exported: bool = False
    warning: str | None = None


def load_sources(path: str | Path) -> tuple[Source, ...]:
    """Read the sources of a `.toml`, `.opml`, `.xml`, `.json` or `.txt` file, in its order.

    Declarations with the same canonical URL are one source: the first one, with the tags of all.
    One warning names the others. Wrong outlines of an OPML file are left out, with a warning each;
    a file without any other source is refused. Raises SourcesError.
    """
    file = Path(path)
    kept, warnings = read_sources(file)
    warn(file, warnings)
    return kept


def read_sources(file: Path) -> tuple[tuple[Source, ...], list[str]]:
    """Return the same sources, and what is to be warned of."""
    wrong: list[str] = []
    declared, warning = _read(file, read_body(file), wrong)
    kept, repeated = _merge_all(declared)
    if not kept:
        raise SourcesError(f"{file}: {_why_empty(wrong)}")
    warnings = [warning] if warning else []
    warnings += (f"left out: {reason}" for reason in wrong)
    return kept, warnings + repetitions(repeated)


def repetitions(places: Sequence[str]) -> list[str]:
    """Return the warning for sources that were declared before; none without any."""
    if not places:
        return []
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return [f"declared before and counted once: {', '.join(places[:3])}{more}"]


def warn(file: Path, warnings: Iterable[str]) -> None:
    """Log what is to be warned of in a file that can be used."""
    for warning in warnings:
        _log.warning("%s: %s", file, warning)


def declarations(file: Path, body: bytes) -> list[Declaration]:
    """Return each declaration of a file with this body, repeated ones too; none for an empty file.

    Wrong outlines of an OPML file are left out. Raises SourcesError.
    """
    return _read(file, body, [])[0]


def _read(file: Path, body: bytes, wrong: list[str]) -> tuple[list[Declaration], str | None]:
    """Return the declarations and a warning; append what is left out to ``wrong``."""
    read = _READERS.get(file.suffix.lower())
    if read is None:
        raise SourcesError(
            f"{file}: sources are read from .toml, .opml, .xml, .json and .txt files; rename it"
        )
    try:
        contents = read(body)
        return list(_check(contents, wrong)), contents.warning
    except (SourcesError, UnreadableSources) as error:
        raise SourcesError(f"{file}: {error}") from None


def read_body(file: Path) -> bytes:
    """Return what a sources file contains. Raises SourcesError."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        why = (
            "there is no such file; create it, or name another: --sources FILE, "
            "for a crawl -a sources=FILE"
        )
    except IsADirectoryError:
        why = "this is a folder; name a file in it"
    except (OSError, ValueError) as error:
        why = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
    raise SourcesError(f"{file}: {why}")


def _check(contents: _Contents, wrong: list[str]) -> Iterator[Declaration]:
    """Yield each declaration.

    Wrong sources of an exported file are left out, and the reasons appended to ``wrong``. In any
    other file the first wrong source raises SourcesError.
    """
    for raw in contents.sources:
        try:
            yield _declaration(raw)
        except SourcesError as error:
            if not contents.is_exported:
                raise
            wrong.append(str(error))


def _merge_all(found: Iterable[Declaration]) -> tuple[tuple[Source, ...], list[str]]:
    """Return each target once, and the places of its further declarations."""
    kept: dict[str, Source] = {}
    repeated: list[str] = []
    for place, source in found:
        key = canonical_url(source.url)
        if key in kept:
            repeated.append(place)
            kept[key] = merged(kept[key], source)
        else:
            kept[key] = source
    return tuple(kept.values()), repeated


def merged(first: Source, other: Source) -> Source:
    """Return a source with what a further declaration of it adds."""
    return replace(
        first,
        name=first.name or other.name,
        tags=tuple(dict.fromkeys((*first.tags, *other.tags))),
        pause=max(filter(None, (first.pause, other.pause)), default=None),
        page=first.page or other.page,
        folders=first.folders or other.folders,
    )


def _why_empty(wrong: list[str]) -> str:
    if not wrong:
        return "it declares no source; add one, at least its URL"
    if len(wrong) == 1:
        return wrong[0]
    return f"none of its {len(wrong)} sources can be requested; {wrong[0]}"


def _declaration(raw: _RawSource) -> Declaration:
    return Declaration(raw.place, _source_of(raw))


def _source_of(raw: _RawSource) -> Source:
    """Return the source that a declaration is about. Raises SourcesError."""
    value = raw.value
    try:
        _check_keys(value)
        return Source(
            url=target_url(value.get("url")),
            kind=_kind(value),
            name=_name(value),
            tags=_tags(value),
            every=_every(value),
            pause=_pause(value),
            page=raw.page,
            folders=raw.folders,
        )
    except SourcesError as error:
        raise SourcesError(f"{raw.place}: {error}") from None


def _check_keys(value: object) -> None:
    if not isinstance(value, dict):
        raise SourcesError("it is neither a URL nor a table with one")
    for key in value:
        if key not in _KEYS:
            raise SourcesError(f"unknown key {key[:40]!r}{_suggestion(key, _KEYS)}")


def _kind(value: dict[str, Any]) -> Kind:
    kind = value.get("kind", "feed")
    if kind not in _KINDS:
        raise SourcesError(f"unknown kind {kind!r:.40}{_suggestion(kind, _KINDS)}")
    return cast("Kind", kind)


def _name(value: dict[str, Any]) -> str | None:
    name = value.get("name")
    if name is not None and not isinstance(name, str):
        raise SourcesError("its name is not a text; put it in quotes")
    return name or None


def _tags(value: dict[str, Any]) -> tuple[str, ...]:
    tags = value.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise SourcesError('its tags are not a list of texts; write tags = ["news", "tech"]')
    return tuple(dict.fromkeys(tags))


def _every(value: dict[str, Any]) -> timedelta | None:
    every = value.get("every")
    if every is None:
        return None
    try:
        length = parse_duration(every) if isinstance(every, str) else None
    except ValueError as error:
        raise SourcesError(f"every: {error}") from None
    if not length:
        raise SourcesError('every is not a length of time; write for example every = "P1D"')
    return length


def _pause(value: dict[str, Any]) -> timedelta | None:
    pause = value.get("pause")
    if pause is None:
        return None
    try:
        if isinstance(pause, str):
            length = parse_duration(pause)
        else:
            length = timedelta(seconds=pause if isinstance(pause, int | float) else 0)
    except (OverflowError, ValueError) as error:
        raise SourcesError(f"pause: {error}") from None
    if not timedelta(0) < length <= LONGEST_PAUSE:
        raise SourcesError(
            'pause is not a length of time of at most 12 hours; write for example pause = "PT10S" '
            "or pause = 10, and for rarer visits every"
        )
    return length


def _suggestion(word: object, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(word)[:40].lower(), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _read_toml(body: bytes) -> _Contents:
    """Read `[[source]]` tables."""
    try:
        document = tomllib.loads(_text_of(body))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableSources(f"it is not TOML: {error}") from error
    return _Contents(_entries(document, "[[source]]"))


def _read_json(body: bytes) -> _Contents:
    """Read a list of URLs and objects, or an object with such a list as its `source`."""
    try:
        document = json.loads(_text_of(body))
    except (ValueError, RecursionError) as error:
        raise UnreadableSources(f"it is not JSON: {error}") from error
    tables = document if isinstance(document, dict) else {"source": document}
    return _Contents(_entries(tables, '"source"'))


def _read_list(body: bytes) -> _Contents:
    """Read one URL a line; `#` at the start of a line or after a space begins a comment."""
    return _Contents(_lines(_text_of(body)))


def _read_opml(body: bytes) -> _Contents:
    """Read subscriptions: `xmlUrl`, name, folders and categories as tags, `htmlUrl` as page.

    Attributes of our own namespace are `every` and `pause`.
    """
    # It imports two parsers of XML, and few operators declare their sources so.
    from walsh_scrapy.sources.opml import read_opml  # noqa: PLC0415

    opml = read_opml(body)
    warning = None
    if not opml.is_whole:
        warning = "it has no end (</opml>), so sources may be missing; export it again"
    return _Contents(map(_subscription, opml.outlines), is_exported=True, warning=warning)


def _subscription(outline: Outline) -> _RawSource:
    name = outline.name
    kind = "llms" if outline.kind == "llms" else "feed"
    return _RawSource(
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


def _lines(text: str) -> Iterator[_RawSource]:
    for number, line in enumerate(_LINE_END.split(text), 1):
        if url := _COMMENT.sub("", line).strip():
            if len(url.split()) > 1:
                raise UnreadableSources(f"line {number}: one URL a line; a comment begins with #")
            yield _RawSource(f"line {number}", {"url": url})


def _entries(document: dict[str, Any], notation: str) -> Iterator[_RawSource]:
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
        yield _RawSource(f"entry {number}", table)


def _text_of(body: bytes) -> str:
    """Return a file as text, without a byte order mark. Raises UnreadableSources."""
    body = body.removeprefix(BOM_UTF8)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = len(_LINE_END.split(body[: error.start].decode("utf-8")))
        raise UnreadableSources(f"line {line}: it is not UTF-8; save it as UTF-8") from error


#: By the ending of the file. They raise UnreadableSources.
_READERS: Final[dict[str, Callable[[bytes], _Contents]]] = {
    ".toml": _read_toml,
    ".json": _read_json,
    ".txt": _read_list,
    ".opml": _read_opml,
    ".xml": _read_opml,
}


def stream(file: Path) -> Iterator[Declaration] | None:
    """Yield what a file declares, in its order; None for a format that is read as a whole.

    Raises a ValueError for a file that is wrong, or has to be read as a whole: reading it so says
    which, and where. And raises what opening it raises.
    """
    read = _STREAMS.get(file.suffix.lower())
    return None if read is None else read(file)


def _streamed_tables(file: Path) -> Iterator[Declaration]:
    """Yield the `[[source]]` tables of a TOML file that has nothing else."""
    numbers = count(1)
    lines: list[str] = []
    has_begun = False
    with file.open(encoding="utf-8-sig", newline="\n") as text:
        for line in text:
            if '"""' in line or "'''" in line:
                raise UnreadableSources(
                    "a string of several lines may hold what looks like a table"
                )
            stripped = line.rstrip("\r\n")
            if stripped == _HEADER:
                if has_begun:
                    yield _table(next(numbers), lines)
                has_begun, lines = True, []
            elif has_begun:
                lines.append(line)
            elif stripped.strip(" \t") and not stripped.lstrip(" \t").startswith("#"):
                raise UnreadableSources("it does not begin with a table")
    if has_begun:
        yield _table(next(numbers), lines)


def _table(number: int, lines: list[str]) -> Declaration:
    value = _read_table(f"{_HEADER}\n{''.join(lines)}")
    return _declaration(_RawSource(f"entry {number}", value))


def _read_table(text: str) -> object:
    """Return what a table says: TOML's reader takes ten times as long for one that is plain."""
    plain: dict[str, object] = {}
    for line in filter(None, text.split("\n")[1:]):
        found = _PLAIN_LINE.fullmatch(line)
        if found is None or found[1] in plain:
            (raw,) = _read_toml(text.encode()).sources
            return raw.value
        plain[found[1]] = json.loads(found[2])
    return plain


def _streamed_lines(file: Path) -> Iterator[Declaration]:
    """Yield the lines of a list that declare a source."""
    with file.open(encoding="utf-8-sig") as text:  # all three line ends become "\n"
        for number, line in enumerate(text, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                (raw,) = _read_list(line.encode()).sources
                yield _declaration(raw._replace(place=f"line {number}"))


_STREAMS: Final[dict[str, Callable[[Path], Iterator[Declaration]]]] = {
    ".toml": _streamed_tables,
    ".txt": _streamed_lines,
}
