"""Sources as TOML that is valid and safe to print, whatever characters a title has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.sources import Source


def source_table(source: Source) -> Iterator[str]:
    """Yield a source as a table of ``sources.toml``; kind "feed" is the default there."""
    yield "[[source]]"
    yield f"url = {toml_string(source.url)}"
    if source.kind != "feed":
        yield f"kind = {toml_string(source.kind)}"
    if source.name:
        yield f"name = {toml_string(source.name)}"


def toml_string(text: str) -> str:
    r"""Return a text as a TOML basic string that is safe for a terminal.

    Control characters and direction marks are written as `\u009b`. A lone surrogate, which no TOML
    file can hold, becomes a replacement character.
    """
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(map(_escaped, json.dumps(whole, ensure_ascii=False)))


def comment(line: str) -> str:
    """Return a line as a TOML comment that is safe for a terminal."""
    return f"# {printable(line)}".rstrip()


def _escaped(character: str) -> str:
    return character if printable(character) == character else f"\\u{ord(character):04x}"
