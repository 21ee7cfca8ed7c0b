"""The tables `[defaults.TAG]` of a TOML file: `every` and `delay` for the sources with a tag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from walsh_scrapy.feeds.sources.source import SourcesError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta


@dataclass(frozen=True, slots=True)
class TagDefaults:
    """The values of one table, and the place of the table in the file."""

    place: str  #: "line 3"
    every: timedelta | None
    delay: timedelta | None


class Defaults:
    """The defaults of all tags of a file. Of the tags of a source, the longest value counts."""

    def __init__(self) -> None:
        self._by_tag: dict[str, TagDefaults] = {}
        self._unused: set[str] = set()

    def add(self, tag: str, values: TagDefaults) -> None:
        """Add the table of a tag. Raises SourcesError if the tag has one already."""
        if tag in self._by_tag:
            raise SourcesError(f"the tag {tag[:40]!r} has two tables of defaults; keep one")
        self._by_tag[tag] = values
        self._unused.add(tag)

    def longest(self, tags: Sequence[str]) -> tuple[timedelta | None, timedelta | None]:
        """Return the longest `every` and the longest `delay` of these tags."""
        if not self._by_tag:
            return None, None
        self._unused.difference_update(tags)
        values = [self._by_tag[tag] for tag in tags if tag in self._by_tag]
        every = max((value.every for value in values if value.every), default=None)
        delay = max((value.delay for value in values if value.delay), default=None)
        return every, delay

    def warn(self, warnings: list[str]) -> None:
        """Append a warning about the tables whose tag no source has."""
        unused = [
            f"{values.place} ({tag[:40]!r})"
            for tag, values in self._by_tag.items()
            if tag in self._unused
        ]
        if unused:
            more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
            shown = ", ".join(unused[:3])
            warnings.append(f"defaults for a tag that no source has: {shown}{more}")
