"""The sources as an OPML 2.0 file, which feed readers and ``load_sources`` read."""

from __future__ import annotations

import json
import re
from typing import IO, TYPE_CHECKING, Final
from xml.sax.saxutils import quoteattr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.entries import StoredEntry

_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<opml version="2.0">\n'
    "<head><title>Sources of walsh-scrapy</title></head>\n<body>\n"
)
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# In a list of categories these would be other tags when they are read again.
_NO_CATEGORY: Final = re.compile(r",|^[\s/]|[\s/]$|^$")


def export_sources(
    sources: Iterable[Source], file: IO[bytes], newest: Callable[[str], StoredEntry | None]
) -> int:
    """Write each source as an outline, and return how many there are.

    A source without a name gets the title of its newest entry's feed, or its URL. What OPML has no
    attribute for (`every`) is left out.
    """
    count = 0
    file.write(_HEAD.encode())
    for source in sources:
        title = source.name or _title_of(newest(source.url)) or source.url
        file.writelines(f"{line}\n".encode() for line in _outline(source, title))
        count += 1
    file.write(b"</body>\n</opml>\n")
    return count


def _outline(source: Source, title: str) -> Iterator[str]:
    """Yield a source's line, within folders where its tags cannot stand in a list."""
    listable = not any(map(_NO_CATEGORY.search, source.tags))
    folders = () if listable else tuple(filter(str.strip, source.tags))
    attributes = {
        "type": "llms" if source.kind == "llms" else "rss",
        "text": title,
        "title": title,
        "xmlUrl": source.url,
        "htmlUrl": source.page,
        "category": ",".join(source.tags) if listable else None,
    }
    for folder in folders:
        yield f"<outline text={_quoted(folder)}>"
    written = (f"{name}={_quoted(value)}" for name, value in attributes.items() if value)
    yield f"<outline {' '.join(written)}/>"
    for _ in folders:
        yield "</outline>"


def _quoted(text: str) -> str:
    return quoteattr(_ILLEGAL.sub("", text))


def _title_of(seen: StoredEntry | None) -> str | None:
    try:
        title = json.loads(seen.item)["source_title"] if seen else None
    except (ValueError, KeyError, TypeError):
        return None
    return title if isinstance(title, str) else None
