"""Sources as OPML, which feed readers import, and which can be declared again."""

from __future__ import annotations

import json
import re
from typing import IO, TYPE_CHECKING, Final
from xml.sax.saxutils import quoteattr

from walsh_scrapy.policy.durations import format_duration
from walsh_scrapy.policy.wording import xml_text
from walsh_scrapy.sources.opml import NAMESPACE, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state.entries import StoredEntry

_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    f'<opml version="2.0" xmlns:{PREFIX}="{NAMESPACE}">\n'
    "<head><title>Sources of walsh-scrapy</title></head>\n<body>\n"
)
# Tags that would be read back as other tags from a list of categories.
_NO_CATEGORY: Final = re.compile(r",|^[\s/]|[\s/]$|^$")


def export_sources(
    sources: Iterable[Source], file: IO[bytes], newest: Callable[[str], StoredEntry | None]
) -> int:
    """Write each source as an outline, and return how many there were.

    ``newest`` returns the newest entry of a source, by its URL. A source without a name is titled
    after the feed of that entry, or else by its URL. `every` and `pause` are attributes of
    our own namespace.
    """
    count = 0
    opened: tuple[str, ...] = ()
    file.write(_HEAD.encode())
    for source in sources:
        title = source.name or _title_of(newest(source.url)) or source.url
        folders, outline = outline_of(source, title)
        file.writelines(f"{line}\n".encode() for line in (*_folder_tags(folders, opened), outline))
        count, opened = count + 1, folders
    file.writelines(f"{line}\n".encode() for line in _folder_tags((), opened))
    file.write(b"</body>\n</opml>\n")
    return count


def outline_of(source: Source, title: str) -> tuple[tuple[str, ...], str]:
    """Return the folders of a source, and its outline.

    Tags that are no folders are categories; where they cannot be listed they are folders too.
    """
    tags = tuple(tag for tag in source.tags if tag not in source.folders)
    listable = not any(map(_NO_CATEGORY.search, tags))
    folders = source.folders if listable else (*source.folders, *filter(str.strip, tags))
    attributes = {
        "type": "llms" if source.kind == "llms" else "rss",
        "text": title,
        "title": title,
        "xmlUrl": source.url,
        "htmlUrl": source.page,
        "category": ",".join(tags) if listable else None,
        f"{PREFIX}:every": format_duration(source.every) if source.every else None,
        f"{PREFIX}:pause": format_duration(source.pause) if source.pause else None,
    }
    written = (f"{name}={_quote(value)}" for name, value in attributes.items() if value)
    return folders, f"<outline {' '.join(written)}/>"


def _folder_tags(folders: tuple[str, ...], opened: tuple[str, ...]) -> Iterator[str]:
    """Yield the tags that lead from the open folders to those of the next source."""
    pairs = enumerate(zip(folders, opened, strict=False))
    shared = next((at for at, (new, old) in pairs if new != old), min(len(folders), len(opened)))
    yield from ("</outline>" for _ in opened[shared:])
    yield from (f"<outline text={_quote(folder)}>" for folder in folders[shared:])


def _quote(text: str) -> str:
    return quoteattr(xml_text(text))


def _title_of(seen: StoredEntry | None) -> str | None:
    try:
        title = json.loads(seen.item)["source_title"] if seen else None
    except (ValueError, KeyError, TypeError):
        return None
    return title if isinstance(title, str) else None
