"""Editing a sources file: sources added, removed, and given another URL; all else stays as it is.

The edited file is read again before anything is written. If it does not declare exactly what was
asked for, nothing is changed, and the operator is told to edit it by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources.loading import declarations
from walsh_scrapy.sources.readers import UnreadableSources
from walsh_scrapy.sources.source import Source, SourcesError, target_url
from walsh_scrapy.sources.writers import Changes, writer_for

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What to change. URLs are those of ``load_sources``; any spelling of one means the source."""

    added: Sequence[Source] = ()
    removed: Collection[str] = ()
    rewritten: Mapping[str, str] = field(default_factory=dict)  #: the new URL by the old one


def edited(file: Path, body: bytes, edit: Edit) -> bytes:
    """Return what ``file`` contains after the edit, if it contains ``body`` now.

    A source that is declared several times is removed, or rewritten, everywhere. A list of URLs
    (`.txt`) cannot hold names, so they are left out of it. Raises SourcesError if the file cannot
    be read, cannot hold a source, or would declare none any more.
    """
    removed = set(map(canonical_url, edit.removed))
    rewritten = {canonical_url(old): target_url(new) for old, new in edit.rewritten.items()}
    wanted: list[Source] = []
    changes = Changes(added=[_held(file, source) for source in edit.added])
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
        new = writer_for(file.suffix)(body, changes)
    except UnreadableSources as error:
        raise SourcesError(f"{file}: it cannot be edited: {error}") from None
    if [source for _number, _place, source in declarations(file, new)] != wanted:
        raise SourcesError(
            f"{file}: it cannot be edited without changing other sources; edit it by hand"
        )
    return new


def _held(file: Path, source: Source) -> Source:
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
