"""Writes the sources file of a crawl."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

#: A URL, or the fields of a `[[source]]`: url, kind, name, tags, every, pause.
SourceLike = str | Mapping[str, str | float | list[str]]


def write_sources(path: Path, sources: Iterable[SourceLike]) -> Path:
    """Write a sources file and return its path: a list if the name ends in .txt, else TOML."""
    entries = [{"url": source} if isinstance(source, str) else source for source in sources]
    if path.suffix == ".txt":
        text = "".join(f"{entry['url']}\n" for entry in entries)
    else:
        text = "\n".join(map(_table, entries))
    path.write_text(text, encoding="utf-8")
    return path


def _table(entry: Mapping[str, str | float | list[str]]) -> str:
    # JSON strings and lists of them are TOML too, if no character becomes a surrogate pair.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join(["[[source]]", *lines, ""])
