"""Loading a sources file: each declaration is checked, and each target is kept once (R6).

A file with a wrong declaration is refused as a whole, with one line: the place and the reason. In
a list that a program exported (OPML), a source that cannot be requested is left out with a warning.

Files are TOML, JSON, a plain list of URLs, or OPML. A list is read line by line, and a TOML file
table by table where it surely can be split so; a large one is never in memory as a whole.
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
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast

from walsh_scrapy.policy.blocklist import strict_json
from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources.files import (
    MAX_PIECE_LENGTH,
    MAX_WHOLE_BYTES,
    UnreadableFile,
    open_file,
    read_within,
)
from walsh_scrapy.sources.source import Kind, Source, SourcesError, target_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from io import BufferedReader

    from walsh_scrapy.sources.opml import Outline

_KINDS: Final = ("feed", "llms")
_KEYS: Final = ("url", "kind", "name", "tags", "every", "delay")
#: A robots.txt is obeyed for a day. With a longer delay it could be out of date whenever its host
#: is ready, so that nothing else would ever be requested.
MAX_DELAY: Final = timedelta(hours=12)

_COMMENT: Final = re.compile(r"(?:^|\s+)#.*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_HEADER: Final = "[[source]]"
# A string without escapes, or a list of them, which TOML and JSON write alike.
_STRING: Final = r'"[^"\\\x00-\x1f\x7f]*"'
_PLAIN_LINE: Final = re.compile(rf"([A-Za-z0-9_-]+) = ({_STRING}|\[{_STRING}(?:, ?{_STRING})*\])")
#: Bytes of a TOML file that is not a row of tables; TOML's reader needs 400 times as many.
_MAX_TOML_BYTES: Final = 2**20
#: A key with more parts than any: TOML's reader needs the square of their number.
_DEEP_KEY: Final = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}"""
)

_log = logging.getLogger(__name__)


class PlacedSource(NamedTuple):
    """One source, and where the file declares it."""

    place: str  #: "line 3", "entry 3" or "outline 3"
    source: Source


class _RawSource(NamedTuple):
    """One source as its file has it, unchecked."""

    place: str  #: "line 3", "entry 3" or "outline 3"
    value: Any
    page: str | None = None  #: the web page it belongs to
    folders: tuple[str, ...] = ()  #: of a feed reader, the outermost first
    is_exported: bool = False  #: by a program, so that an operator cannot correct it


def load_sources(path: str | Path) -> tuple[Source, ...]:
    """Read the sources of a `.toml`, `.opml`, `.xml`, `.json` or `.txt` file, in its order.

    Declarations with the same canonical URL are one source: the first one, with the tags of all.
    One warning names the others. Wrong outlines of an OPML file are left out, with a warning each;
    a file without any other source is refused. Raises SourcesError.
    """
    file, warnings = Path(path), list[str]()
    kept: dict[str, Source] = {}
    repeated: list[str] = []
    for place, source in read_declarations(file, warnings):
        key = canonical_url(source.url)
        if key in kept:
            repeated.append(place)
        kept[key] = merge_sources(kept[key], source) if key in kept else source
    log_warnings(file, warnings + repetition_warnings(repeated))
    return tuple(kept.values())


def repetition_warnings(places: Sequence[str]) -> list[str]:
    """Return the warning for sources that were declared before; none without any."""
    if not places:
        return []
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return [f"declared before and counted once: {', '.join(places[:3])}{more}"]


def log_warnings(file: Path, warnings: Iterable[str]) -> None:
    """Log the warnings of a usable file."""
    for warning in warnings:
        _log.warning("%s: %s", file, warning)


def read_declarations(file: Path, warnings: list[str]) -> Iterator[PlacedSource]:
    """Yield the declarations of a file, in its order, repeated sources too.

    Warnings are appended to ``warnings``. Raises SourcesError, even for a file that declares no
    source.
    """
    is_empty = True
    with open_sources(file) as opened:
        for declared in parse_declarations(file, opened, warnings):
            is_empty = False
            yield declared
    if is_empty:
        raise SourcesError(f"{file}: {_why_empty(warnings)}")


def parse_declarations(file: Path, opened: BinaryIO, warnings: list[str]) -> Iterator[PlacedSource]:
    """Yield the same of ``opened``, which has the text of the file, and may declare nothing."""
    read = _READERS.get(file.suffix.lower())
    if read is None:
        raise SourcesError(
            f"{file}: sources are read from .toml, .opml, .xml, .json and .txt files; rename it"
        )
    try:
        for raw in read(opened, warnings):
            try:
                yield _declaration(raw)
            except SourcesError as error:
                if not raw.is_exported:
                    raise
                warnings.append(f"{_LEFT_OUT}{error}")
    except (SourcesError, UnreadableFile) as error:
        raise SourcesError(f"{file}: {error}") from None


def open_sources(file: Path) -> BufferedReader:
    """Open a sources file. Raises SourcesError."""
    try:
        return open_file(file)
    except FileNotFoundError:
        why = (
            "there is no such file; create it, or name another: --sources FILE, "
            "for a crawl -a sources=FILE"
        )
    except IsADirectoryError:
        why = "this is a folder; name a file in it"
    except UnreadableFile as error:
        why = str(error)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
    raise SourcesError(f"{file}: {why}")


def merge_sources(first: Source, other: Source) -> Source:
    """Return a source with the additions of a further declaration."""
    return replace(
        first,
        name=first.name or other.name,
        tags=tuple(dict.fromkeys((*first.tags, *other.tags))),
        delay=max(filter(None, (first.delay, other.delay)), default=None),
        page=first.page or other.page,
        folders=first.folders or other.folders,
    )


_LEFT_OUT: Final = "left out: "


def _why_empty(warnings: list[str]) -> str:
    left_out = [each for each in warnings if each.startswith(_LEFT_OUT)]
    if not left_out:
        return "it declares no source; add one, at least its URL"
    first = left_out[0].removeprefix(_LEFT_OUT)
    return (
        first
        if len(left_out) == 1
        else (f"none of its {len(left_out)} sources can be requested; {first}")
    )


def _declaration(raw: _RawSource) -> PlacedSource:
    return PlacedSource(raw.place, _build_source(raw))


def _build_source(raw: _RawSource) -> Source:
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
            delay=_delay(value),
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


def _delay(value: dict[str, Any]) -> timedelta | None:
    delay = value.get("delay")
    if delay is None:
        return None
    try:
        if isinstance(delay, str):
            length = parse_duration(delay)
        else:
            length = timedelta(seconds=delay if isinstance(delay, int | float) else 0)
    except (OverflowError, ValueError) as error:
        raise SourcesError(f"delay: {error}") from None
    if not timedelta(0) < length <= MAX_DELAY:
        raise SourcesError(
            'delay is not a length of time of at most 12 hours; write for example delay = "PT10S" '
            "or delay = 10, and for rarer visits every"
        )
    return length


def _suggestion(word: object, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(word)[:40].lower(), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _read_toml(opened: BinaryIO, _: list[str]) -> Iterator[_RawSource]:
    """Yield the `[[source]]` tables; a file that has anything else is read as a whole."""
    numbers = count(1)
    with _text_of(opened, newline="\n") as text:
        is_row = _is_row_of_tables(text)
        text.seek(0)
        if not is_row:
            yield from _entries(_parse_toml(_whole(opened, _MAX_TOML_BYTES)), _HEADER, numbers)
        for first, table in _tables(text) if is_row else ():
            if (plain := _plain_table(table)) is not None:
                yield _RawSource(f"entry {next(numbers)}", plain)
            else:
                yield from _entries(_parse_toml("".join(table), first), _HEADER, numbers)


def _is_row_of_tables(text: TextIOWrapper) -> bool:
    """Return True if each line with a header begins another source, which ends at the next one.

    A string of several lines may hold a line like a header.
    """
    has_begun = False
    for _, line in _lines(text):
        if '"""' in line or "'''" in line:
            return False
        if not has_begun and line.strip(" \t\r\n") and not line.lstrip(" \t").startswith("#"):
            if line.rstrip("\r\n") != _HEADER:
                return False
            has_begun = True
    return True


def _tables(text: TextIOWrapper) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the line at which a table begins, and its lines."""
    first, size, table = 1, 0, list[str]()
    for number, line in _lines(text):
        if line.rstrip("\r\n") == _HEADER:
            if table:
                yield first, table
            first, size, table = number, 0, []
        elif not table:
            continue  # a comment before the first
        table.append(line)
        size += len(line)
        if size > MAX_PIECE_LENGTH:
            raise UnreadableFile(
                f"line {first}: its table is longer than {MAX_PIECE_LENGTH} characters"
            )
    if table:
        yield first, table


def _plain_table(table: list[str]) -> dict[str, object] | None:
    """Return the values of a plain table, else None; TOML's reader takes ten times as long.

    The first line is the header.
    """
    plain: dict[str, object] = {}
    for line in table[1:]:
        if (line := line.removesuffix("\n")) == "":
            continue
        found = _PLAIN_LINE.fullmatch(line)
        if found is None or found[1] in plain:
            return None
        plain[found[1]] = json.loads(found[2])
    return plain


def _parse_toml(text: str, first: int = 1) -> dict[str, Any]:
    """Return a TOML document; ``first`` is the number of its first line in the file."""
    if deep := _DEEP_KEY.search(text):
        line = first + text.count("\n", 0, deep.start())
        raise UnreadableFile(f"line {line}: a key has too many parts; keys are {', '.join(_KEYS)}")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number of 5000 digits, too
        where = re.sub(
            r"at line ([0-9]+)", lambda at: f"at line {int(at[1]) + first - 1}", str(error)
        )
        raise UnreadableFile(f"it is not TOML: {where}") from error


def _read_json(opened: BinaryIO, _: list[str]) -> Iterator[_RawSource]:
    """Read a list of URLs and objects, or an object with such a list as its `source`."""
    try:
        document = strict_json(_whole(opened).encode())
    except UnreadableFile:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"it is not JSON: {error}") from error
    tables = document if isinstance(document, dict) else {"source": document}
    return _entries(tables, '"source"', count(1))


def _read_list(opened: BinaryIO, _: list[str]) -> Iterator[_RawSource]:
    """Read one URL per line; `#` at the start of a line or after a space begins a comment."""
    with _text_of(opened, newline=None) as text:
        for number, line in _lines(text):
            if url := _COMMENT.sub("", line).strip():
                if len(url.split()) > 1:
                    raise UnreadableFile(f"line {number}: one URL per line; comments begin with #")
                yield _RawSource(f"line {number}", {"url": url})


def _read_opml(opened: BinaryIO, warnings: list[str]) -> Iterator[_RawSource]:
    """Read subscriptions: `xmlUrl`, name, folders and categories as tags, `htmlUrl` as page.

    Attributes of our namespace are `every` and `delay`.
    """
    # It imports a parser of XML, and few operators declare their sources so.
    from walsh_scrapy.sources.opml import read_opml  # noqa: PLC0415

    opml = read_opml(read_within(opened))
    if not opml.is_whole:
        warnings.append("it has no end (</opml>), so sources may be missing; export it again")
    return map(_subscription, opml.outlines)


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
            "delay": outline.own("delay"),
        },
        outline.attributes.get("htmlurl") or None,
        tuple(dict.fromkeys(outline.folders)),
        is_exported=True,
    )


def _entries(
    document: dict[str, Any], notation: str, numbers: Iterator[int]
) -> Iterator[_RawSource]:
    for key in document:
        if key != "source":
            raise UnreadableFile(f"unknown key {key[:40]!r} at the top; sources are {notation}")
    listed = document.get("source", [])
    if not isinstance(listed, list):
        raise UnreadableFile(f"its sources are not a list; write {notation} and a table or a list")
    for value in listed:
        table = {"url": value} if isinstance(value, str) else value
        yield _RawSource(f"entry {next(numbers)}", table)


def _whole(opened: BinaryIO, max_bytes: int = MAX_WHOLE_BYTES) -> str:
    """Return a file as text, without a byte order mark. Raises UnreadableFile."""
    body = read_within(opened, max_bytes).removeprefix(BOM_UTF8)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = len(_LINE_END.split(body[: error.start].decode("utf-8")))
        raise UnreadableFile(f"line {line}: {_NOT_UTF8}") from error


def _text_of(opened: BinaryIO, newline: str | None) -> TextIOWrapper:
    return TextIOWrapper(opened, "utf-8-sig", errors="surrogateescape", newline=newline)


def _lines(text: TextIOWrapper) -> Iterator[tuple[int, str]]:
    """Yield each line of a file, with its number. Raises UnreadableFile."""
    for number in count(1):
        line = text.readline(MAX_PIECE_LENGTH + 1)
        if not line:
            return
        if len(line) > MAX_PIECE_LENGTH:
            raise UnreadableFile(f"line {number}: it is longer than {MAX_PIECE_LENGTH} characters")
        if not line.isascii() and _SURROGATE.search(line):
            raise UnreadableFile(f"line {number}: {_NOT_UTF8}")
        yield number, line


_SURROGATE: Final = re.compile("[\udc80-\udcff]")
_NOT_UTF8: Final = "it is not UTF-8; save it as UTF-8"

#: By the ending of the file. They raise UnreadableFile.
_READERS: Final[dict[str, Callable[[BinaryIO, list[str]], Iterator[_RawSource]]]] = {
    ".toml": _read_toml,
    ".json": _read_json,
    ".txt": _read_list,
    ".opml": _read_opml,
    ".xml": _read_opml,
}
