"""Loading a sources file: each declaration is checked, and each target is kept once (R6).

A file with a wrong declaration is refused as a whole, with one line: the place and the reason. In
a list that a program exported (OPML), a source that cannot be requested is left out with a warning.
"""

import difflib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources.readers import Contents, RawSource, reader_for
from walsh_scrapy.sources.source import Kind, Source, SourcesError, UnreadableSources, target_url

_KINDS: Final = ("feed", "llms")
_KEYS: Final = ("url", "kind", "name", "tags", "every", "pause")
#: A robots.txt is obeyed for a day. With a longer pause it could be out of date whenever its host
#: may be asked, so that nothing else would ever be asked for.
LONGEST_PAUSE: Final = timedelta(hours=12)

_log = logging.getLogger(__name__)


class Declaration(NamedTuple):
    """One source, and where the file declares it."""

    place: str  #: "line 3", "entry 3" or "outline 3"
    source: Source


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
    read = reader_for(file.suffix)
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


def _check(contents: Contents, wrong: list[str]) -> Iterator[Declaration]:
    """Yield each declaration.

    Wrong sources of an exported file are left out, and the reasons appended to ``wrong``. In any
    other file the first wrong source raises SourcesError.
    """
    for raw in contents.sources:
        try:
            yield Declaration(raw.place, source_of(raw))
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


def source_of(raw: RawSource) -> Source:
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
