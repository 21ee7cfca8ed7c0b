"""Loading a sources file: TOML, a plain list of URLs, or OPML.

Each declaration is checked. A file with a wrong declaration is refused, with one line that names
the place and the reason. OPML is different, because a program exported it and the operator cannot
correct it: a source that cannot be requested is skipped with a warning.

A large file is never completely in memory: a list is read line by line, and a TOML file table by
table, if it is certain where each table ends. The file of a project that Scrapyd runs is in an egg,
which is a zip file; it is unpacked first.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import sys
import tomllib
from codecs import BOM_UTF8
from dataclasses import replace
from datetime import timedelta
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast
from zipimport import zipimporter

from walsh_scrapy.feeds.sources.source import (
    Defaults,
    Kind,
    Source,
    SourcesError,
    TagDefaults,
    target_url,
    unique,
)
from walsh_scrapy.files import MAX_PIECE_LENGTH, UnreadableFile, atomic_file, open_file, read_within
from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.urls import canonical_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import BufferedReader

    from walsh_scrapy.feeds.sources.opml import Outline


def unpack_sources(name: str) -> str:
    """Return the path of the sources file that the setting names.

    If the egg of the project has that file, it is unpacked below the current folder. The path is
    the same for each version of the project, because the state knows a file by its path. Raises
    SourcesError if the file is missing, or cannot be written.
    """
    settings = sys.modules.get(os.environ.get("SCRAPY_SETTINGS_MODULE", ""))
    egg = getattr(settings, "__loader__", None)
    if not isinstance(egg, zipimporter):
        return name
    try:
        body = egg.get_data(os.path.normpath(name))
    except OSError:  # the egg has no such file
        file = Path(name).absolute()
        if file.exists():
            return str(file)
        raise SourcesError(
            f"there is no {file}, and no {name} in the egg: put the file beside setup.py and "
            "deploy again, or set WALSH_SOURCES to an absolute path"
        ) from None
    project = os.environ.get("SCRAPY_PROJECT", "default")
    file = Path(".scrapy", project, Path(name).name).absolute()
    try:
        if not file.exists() or file.read_bytes() != body:
            with atomic_file(file) as output:
                output.write(body)
    except OSError as error:
        raise SourcesError(
            f"{file}: the sources of the egg cannot be unpacked: {error.strerror}; set "
            "WALSH_SOURCES to the absolute path of a sources file"
        ) from error
    return str(file)


_KINDS: Final = ("feed", "llms")
_KEYS: Final = ("url", "kind", "name", "tags", "every", "delay")
_DEFAULTS_KEYS: Final = ("every", "delay")
_NO_DEFAULTS_TABLE: Final = "defaults is not a table; write [defaults.TAG] above every and delay"
#: A robots.txt is valid for a day. With a longer delay, it could be out of date each time when its
#: host is ready, and then only robots.txt would ever be requested.
MAX_DELAY: Final = timedelta(hours=12)

#: The limits of the tags and folders of a source. An outline has those of all folders around it, so
#: without limits a small OPML file could fill a disk.
MAX_TAG_CHARACTERS: Final = 100
MAX_TAGS: Final = 50
_CUT_TAGS: Final = (
    f"a tag has at most {MAX_TAG_CHARACTERS} characters, and a source {MAX_TAGS} tags; the rest "
    "is left out, the first time at"
)

_COMMENT: Final = re.compile(r"(?:^|\s+)#.*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_HEADER: Final = "[[source]]"
#: The header of a table of defaults. In an array of several lines, such a line is not TOML.
_DEFAULTS_HEADER: Final = re.compile(r"[ \t]*\[\[?[ \t]*defaults[ \t]*[.\]]")
_TAG_IN_HEADER: Final = re.compile(r"""[ \t]*(?:"([^"]*)"|'([^']*)'|([\w-]+))""")
# A string without escapes, or a list of such strings, which are the same in TOML and JSON.
_STRING: Final = r'"[^"\\\x00-\x1f\x7f]*"'
_PLAIN_LINE: Final = re.compile(rf"([A-Za-z0-9_-]+) = ({_STRING}|\[{_STRING}(?:, ?{_STRING})*\])")
#: The maximum size of a TOML file that cannot be split: tomllib needs 400 times as much memory.
_MAX_TOML_BYTES: Final = 2**20
#: A key with 100 parts: the time of tomllib grows with the square of their number.
_DEEP_KEY: Final = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}"""
)

_log = logging.getLogger(__name__)


class PlacedSource(NamedTuple):
    """One source, and the place in the file that declares it."""

    place: str  #: "line 3", "entry 3" or "outline 3"
    source: Source


class _RawSource(NamedTuple):
    """One source as it is in the file, not checked yet."""

    place: str  #: "line 3", "entry 3" or "outline 3"
    value: Any
    page: str | None = None  #: the page of the site
    folders: tuple[str, ...] = ()  #: the folders of a feed reader, the outermost first
    is_exported: bool = False  #: whether a program wrote it, so that nobody can correct it
    defaults: Defaults = Defaults()  #: of the file


def load_sources(path: str | Path) -> tuple[Source, ...]:
    """Read the sources of a `.toml`, `.opml`, `.xml` or `.txt` file, in its order.

    Declarations with the same canonical URL become one source: the first declaration, with the tags
    of all of them. Warnings about repeated and about skipped declarations are logged. Raises
    SourcesError, also for a file without any source.
    """
    file = Path(path)
    warnings: list[str] = []
    sources: dict[str, Source] = {}
    repetitions = Repetitions()
    for declared in read_declarations(file, warnings):
        key = canonical_url(declared.source.url)
        first = sources.get(key)
        sources[key] = repetitions.merge(first, declared) if first else declared.source
    repetitions.warn(warnings)
    log_warnings(file, warnings)
    return tuple(sources.values())


class Repetitions:
    """The declarations of a file that repeat an earlier one: together they are one source."""

    def __init__(self) -> None:
        self._places: list[str] = []
        self._first_cut: str | None = None  # where a source got too many tags

    def merge(self, first: Source, repeated: PlacedSource) -> Source:
        """Return the first source, with what only the repeated one has, and the tags of both."""
        place, second = repeated
        self._places.append(place)
        tags = unique((*first.tags, *second.tags))
        if len(tags) > MAX_TAGS:
            self._first_cut = self._first_cut or place
        return replace(
            first,
            name=first.name or second.name,
            tags=tags[:MAX_TAGS],
            every=max((every for every in (first.every, second.every) if every), default=None),
            delay=max((delay for delay in (first.delay, second.delay) if delay), default=None),
            page=first.page or second.page,
            folders=first.folders or second.folders,
        )

    def warn(self, warnings: list[str]) -> None:
        """Append a warning about repeated declarations, and one about tags that were left out."""
        places = self._places
        if self._first_cut and not any(warning.startswith(_CUT_TAGS) for warning in warnings):
            warnings.append(f"{_CUT_TAGS} {self._first_cut}")
        if places:
            more = f" and {len(places) - 3} more" if len(places) > 3 else ""
            shown = ", ".join(places[:3])
            warnings.append(f"declared more than once, and visited once: {shown}{more}")


def log_warnings(file: Path, warnings: Iterable[str]) -> None:
    """Log warnings about a file."""
    for warning in warnings:
        _log.warning("%s: %s", file, warning)


def read_declarations(file: Path, warnings: list[str]) -> Iterator[PlacedSource]:
    """Yield the declarations of a file, in its order, including repeated ones.

    Warnings are appended to ``warnings``. Raises SourcesError, also for a file without any source.
    """
    is_empty = True
    with open_sources(file) as opened:
        for declaration in parse_declarations(file, opened, warnings):
            is_empty = False
            yield declaration
    if is_empty:
        raise SourcesError(f"{file}: {_explain_emptiness(warnings)}")


def parse_declarations(file: Path, opened: BinaryIO, warnings: list[str]) -> Iterator[PlacedSource]:
    """Like `read_declarations`, for the text in ``opened``, which may declare no source."""
    read = _READERS.get(file.suffix.lower())
    if read is None:
        raise SourcesError(
            f"{file}: the extension of a sources file must be .toml, .opml, .xml or .txt"
        )
    first_cut: str | None = None  # where tags were left out
    try:
        for raw in read(opened, warnings):
            try:
                source = _build_source(raw)
            except SourcesError as error:
                if not raw.is_exported:
                    raise
                warnings.append(f"{SKIPPED}{error}")
                continue
            tags, folders = _cut(source.tags), _cut(source.folders)
            if (tags, folders) != (source.tags, source.folders):
                first_cut = first_cut or raw.place
                source = replace(source, tags=tags, folders=folders)
            yield PlacedSource(raw.place, source)
    except (SourcesError, UnreadableFile) as error:
        raise SourcesError(f"{file}: {error}") from None
    if first_cut is not None:
        warnings.append(f"{_CUT_TAGS} {first_cut}")


def _cut(names: Iterable[str]) -> tuple[str, ...]:
    """Return tags or folders within their limits."""
    return unique(name[:MAX_TAG_CHARACTERS] for name in names)[:MAX_TAGS]


def open_sources(file: Path) -> BufferedReader:
    """Open a sources file. Raises SourcesError."""
    try:
        return open_file(file)
    except FileNotFoundError:
        reason = (
            "there is no such file; create it, or name another one with --sources FILE "
            "(for a crawl, -a sources=FILE)"
        )
    except IsADirectoryError:
        reason = "this is a folder; name a file in it"
    except UnreadableFile as error:
        reason = str(error)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise SourcesError(f"{file}: {reason}")


#: How a warning about a source begins that was left out.
SKIPPED: Final = "skipped "


def _explain_emptiness(warnings: list[str]) -> str:
    skipped = [warning for warning in warnings if warning.startswith(SKIPPED)]
    if not skipped:
        return "no source is declared; add at least one URL"
    first = skipped[0].removeprefix(SKIPPED)
    return (
        first
        if len(skipped) == 1
        else (f"none of the {len(skipped)} sources can be requested; {first}")
    )


def _build_source(raw: _RawSource) -> Source:
    """Check a declaration and return its source. Raises SourcesError."""
    value = raw.value
    try:
        _check_keys(value)
        tags = _read_tags(value)
        every, delay = raw.defaults.longest(tags)
        return Source(
            url=target_url(value.get("url")),
            kind=_read_kind(value),
            name=_read_name(value),
            tags=tags,
            every=_read_every(value) or every,
            delay=_read_delay(value) or delay,
            page=raw.page,
            folders=raw.folders,
        )
    except SourcesError as error:
        raise SourcesError(f"{raw.place}: {error}") from None


def _check_keys(value: object) -> None:
    if not isinstance(value, dict):
        raise SourcesError("this is neither a URL nor a table with a url")
    for key in value:
        if key not in _KEYS:
            raise SourcesError(f"unknown key {key[:40]!r}{_suggest(key, _KEYS)}")


def _read_kind(value: dict[str, Any]) -> Kind:
    kind = value.get("kind", "feed")
    if kind not in _KINDS:
        raise SourcesError(f"unknown kind {kind!r:.40}{_suggest(kind, _KINDS)}")
    return cast("Kind", kind)


def _read_name(value: dict[str, Any]) -> str | None:
    name = value.get("name")
    if name is not None and not isinstance(name, str):
        raise SourcesError("name is not a text; put it in quotes")
    return name or None


def _read_tags(value: dict[str, Any]) -> tuple[str, ...]:
    tags = value.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise SourcesError('tags is not a list of texts; write for example tags = ["news", "tech"]')
    return unique(tags)


def _read_every(value: dict[str, Any]) -> timedelta | None:
    every = value.get("every")
    if every is None:
        return None
    try:
        length = parse_duration(every) if isinstance(every, str) else None
    except ValueError as error:
        raise SourcesError(f"every: {error}") from None
    if not length:
        raise SourcesError('every is not a duration; write for example every = "P1D"')
    return length


def _read_delay(value: dict[str, Any]) -> timedelta | None:
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
            'delay is not a duration of at most 12 hours; write for example delay = "PT10S" or '
            "delay = 10. (For less frequent visits, set every.)"
        )
    return length


def _suggest(word: object, choices: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(word)[:40].lower(), choices, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; choose from {', '.join(choices)}"


def _read_toml(opened: BinaryIO, warnings: list[str]) -> Iterator[_RawSource]:
    """Yield the `[[source]]` tables, one by one if the file has nothing else but defaults.

    The `[defaults.TAG]` tables are read first, because they may be below the sources.
    """
    defaults = Defaults()
    numbers = count(1)
    with _open_text(opened, newline="\n") as text:
        tables = _read_defaults_tables(text)
        text.seek(0)
        if tables is None:
            whole = _read_text(opened)
            document = _parse_toml(whole)
            _add_defaults(defaults, document, whole)
            yield from _list_entries(document, numbers, defaults)
        else:
            for first, table in tables:
                lines = "".join(table)
                document = _parse_toml(lines, first)
                _check_top_level(document, "defaults")
                _add_defaults(defaults, document, lines, first)
            yield from _read_split_sources(text, numbers, defaults)
    defaults.warn(warnings)


def _read_split_sources(
    text: TextIOWrapper, numbers: Iterator[int], defaults: Defaults
) -> Iterator[_RawSource]:
    for first, table in _split_tables(text):
        if _is_defaults_header(table[0]):
            continue
        if (plain := _parse_plain_table(table)) is not None:
            yield _RawSource(f"entry {next(numbers)}", plain, defaults=defaults)
        else:
            document = _parse_toml("".join(table), first)
            _check_top_level(document, "source")
            yield from _list_entries(document, numbers, defaults)


def _is_defaults_header(line: str) -> bool:
    return "defaults" in line and _DEFAULTS_HEADER.match(line) is not None


def _read_header_tag(line: str) -> str | None:
    """Return the tag in the header of a table of defaults; None for any other line."""
    header = _DEFAULTS_HEADER.match(line)
    tag = _TAG_IN_HEADER.match(line, header.end()) if header else None
    return tag[tag.lastindex or 0] if tag else None


def _read_defaults_tables(text: TextIOWrapper) -> list[tuple[int, list[str]]] | None:
    """Return the `[defaults]` tables, each after the number of its first line.

    Return None if the file cannot be split at its headers: in a string of several lines, a line
    that looks like a header may be a part of the string.
    """
    tables: list[tuple[int, list[str]]] = []
    table: list[str] | None = None
    has_begun = False
    size = 0
    for number, line in _read_lines(text):
        if '"""' in line or "'''" in line:
            return None
        is_defaults = _is_defaults_header(line)
        if not has_begun and line.strip(" \t\r\n") and not line.lstrip(" \t").startswith("#"):
            if line.rstrip("\r\n") != _HEADER and not is_defaults:
                return None
            has_begun = True
        if is_defaults:
            table = []
            tables.append((number, table))
        elif table is not None and line.rstrip("\r\n") == _HEADER:
            table = None
        if table is not None:
            table.append(line)
            size += len(line)
            if size > MAX_PIECE_LENGTH:
                raise UnreadableFile(
                    f"line {number}: the [defaults] tables are longer than {MAX_PIECE_LENGTH} "
                    "characters"
                )
    return tables


def _add_defaults(defaults: Defaults, document: dict[str, Any], text: str, first: int = 1) -> None:
    """Check the tables of defaults in a document, and add them. Raises SourcesError.

    ``text`` is the text of the document, and ``first`` the number of its first line in the file.
    """
    tables = document.get("defaults", {})
    if not isinstance(tables, dict):
        raise SourcesError(_NO_DEFAULTS_TABLE)
    places = {
        tag: f"line {number}"
        for number, line in enumerate(_LINE_END.split(text), first)
        if (tag := _read_header_tag(line)) is not None
    }
    for tag, values in tables.items():
        place = places.get(tag, f"[defaults.{tag[:40]}]")
        try:
            _check_defaults(values)
            defaults.add(tag, TagDefaults(place, _read_every(values), _read_delay(values)))
        except SourcesError as error:
            raise SourcesError(f"{place}: {error}") from None


def _check_defaults(values: object) -> None:
    if not isinstance(values, dict):
        raise SourcesError(_NO_DEFAULTS_TABLE)
    for key in values:
        if key not in _DEFAULTS_KEYS:
            hint = _suggest(key, _DEFAULTS_KEYS)
            raise SourcesError(f"unknown key {key[:40]!r} in [defaults.TAG]{hint}")


def _split_tables(text: TextIOWrapper) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each table, and the lines of the table."""
    first = 1
    size = 0
    table: list[str] = []
    for number, line in _read_lines(text):
        if line.rstrip("\r\n") == _HEADER or _is_defaults_header(line):
            if table:
                yield first, table
            first = number
            size = 0
            table = []
        elif not table:
            continue  # a comment before the first table
        table.append(line)
        size += len(line)
        if size > MAX_PIECE_LENGTH:
            raise UnreadableFile(
                f"line {first}: the table is longer than {MAX_PIECE_LENGTH} characters"
            )
    if table:
        yield first, table


def _parse_plain_table(table: list[str]) -> dict[str, object] | None:
    """Return the values of a table with plain strings only, or None for any other table.

    tomllib would take ten times as long. The first line is the header.
    """
    plain: dict[str, object] = {}
    for line in table[1:]:
        if (line := line.removesuffix("\n")) == "":
            continue
        match = _PLAIN_LINE.fullmatch(line)
        if match is None or match[1] in plain:
            return None
        plain[match[1]] = json.loads(match[2])
    return plain


def _parse_toml(text: str, first: int = 1) -> dict[str, Any]:
    """Parse TOML text; ``first`` is the number of its first line in the file."""
    if deep := _DEEP_KEY.search(text):
        line = first + text.count("\n", 0, deep.start())
        raise UnreadableFile(
            f"line {line}: this key has too many parts; the keys are {', '.join(_KEYS)}"
        )
    try:
        return tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # a ValueError may also be a number with 5000 digits
        message = re.sub(
            r"at line ([0-9]+)", lambda at: f"at line {int(at[1]) + first - 1}", str(error)
        )
        raise UnreadableFile(f"this is not TOML: {message}") from error


def _read_list(opened: BinaryIO, _: list[str]) -> Iterator[_RawSource]:
    """Yield one URL per line; `#` at the start of a line or after a space begins a comment."""
    with _open_text(opened, newline=None) as text:
        for number, line in _read_lines(text):
            if url := _COMMENT.sub("", line).strip():
                if len(url.split()) > 1:
                    raise UnreadableFile(
                        f"line {number}: write one URL per line; comments begin with #"
                    )
                yield _RawSource(f"line {number}", {"url": url})


def _read_opml(opened: BinaryIO, warnings: list[str]) -> Iterator[_RawSource]:
    """Yield the subscriptions, with the folders and categories as tags."""
    # Imported late, because it loads an XML parser, and few operators have an OPML file.
    from walsh_scrapy.feeds.sources.opml import read_opml  # noqa: PLC0415

    opml = read_opml(read_within(opened))
    if not opml.is_complete:
        warnings.append(
            "the end (</opml>) is missing, so sources may be missing too; export the file again"
        )
    return map(_convert_outline, opml.outlines)


def _convert_outline(outline: Outline) -> _RawSource:
    name = outline.name
    extensions = outline.extensions
    kind = "llms" if outline.kind == "llms" else "feed"
    return _RawSource(
        f"outline {outline.number}" + (f" ({name[:40]!r})" if name else ""),
        {
            "url": outline.url,
            "kind": kind,
            "name": name,
            "tags": [*outline.tags],
            "every": extensions.get("every"),
            "delay": extensions.get("delay"),
        },
        outline.attributes.get("htmlurl") or None,
        unique(outline.folders),
        is_exported=True,
    )


def _list_entries(
    document: dict[str, Any], numbers: Iterator[int], defaults: Defaults
) -> Iterator[_RawSource]:
    _check_top_level(document, "source", "defaults")
    values = document.get("source", [])
    if not isinstance(values, list):
        raise UnreadableFile(
            f"the sources are not a list; write {_HEADER} above the keys of each source"
        )
    for value in values:
        table = {"url": value} if isinstance(value, str) else value
        yield _RawSource(f"entry {next(numbers)}", table, defaults=defaults)


def _check_top_level(document: dict[str, Any], *allowed: str) -> None:
    for key in document:
        if key not in allowed:
            raise UnreadableFile(
                f"unknown key {key[:40]!r}; only {_HEADER} and [defaults.TAG] are allowed at the "
                "top level"
            )


def _read_text(opened: BinaryIO) -> str:
    """Return the text of a TOML file without its byte order mark. Raises UnreadableFile."""
    body = read_within(opened, _MAX_TOML_BYTES).removeprefix(BOM_UTF8)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = len(_LINE_END.split(body[: error.start].decode("utf-8")))
        raise UnreadableFile(f"line {line}: {_NOT_UTF8}") from error


def _open_text(opened: BinaryIO, newline: str | None) -> TextIOWrapper:
    return TextIOWrapper(opened, "utf-8-sig", errors="surrogateescape", newline=newline)


def _read_lines(text: TextIOWrapper) -> Iterator[tuple[int, str]]:
    """Yield each line of a file after its number. Raises UnreadableFile."""
    for number in count(1):
        line = text.readline(MAX_PIECE_LENGTH + 1)
        if not line:
            return
        if len(line) > MAX_PIECE_LENGTH:
            raise UnreadableFile(f"line {number} is longer than {MAX_PIECE_LENGTH} characters")
        if not line.isascii() and _SURROGATE.search(line):
            raise UnreadableFile(f"line {number}: {_NOT_UTF8}")
        yield number, line


_SURROGATE: Final = re.compile("[\udc80-\udcff]")
_NOT_UTF8: Final = "this is not UTF-8; save the file as UTF-8"

#: The readers by the extension of the file. They raise UnreadableFile.
_READERS: Final[dict[str, Callable[[BinaryIO, list[str]], Iterator[_RawSource]]]] = {
    ".toml": _read_toml,
    ".txt": _read_list,
    ".opml": _read_opml,
    ".xml": _read_opml,
}
#: The extensions of a sources file.
EXTENSIONS: Final = tuple(_READERS)
