"""The project that a test crawls with: its folder, environment, settings, sources and state."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path
from typing import Final

from walsh_scrapy.identity import BLOCKLIST_URL
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.documents import hash_of
from walsh_scrapy.state.records import BlocklistCopy

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


_EMPTY: Final = b'{"contract": "walsh-research-blocklist/v1", "refresh": "P7D", "blocked": []}'


def keep_blocklist(state: State, url: str, document: bytes, checked_at: float) -> None:
    """Keep a document as the list that was adopted from `url` at an epoch second."""
    adopted = Blocklist.parse(document).text()
    copy = BlocklistCopy(hash_of(document), None, None, checked_at, adopted)
    state.blocklist.keep(url, copy, document)


def keep_empty_blocklist(state_url: str, now: float | None = None) -> None:
    """Keep an empty list as if it was fetched from its published URL at `now`, an epoch second.

    Without `now` that is this moment. Nothing is kept in a state that cannot be opened.
    """
    with suppress(StateError, UnicodeError):
        state = State(state_url)
        try:
            checked_at = time.time() if now is None else now
            keep_blocklist(state, BLOCKLIST_URL, _EMPTY, checked_at)
        finally:
            state.close()


def find_project(start: Path) -> Path:
    """Return the nearest folder with a scrapy.cfg, from `start` upward; FileNotFoundError."""
    here = start.resolve()
    for folder in (here, *here.parents):
        if (folder / "scrapy.cfg").is_file():
            return folder
    raise FileNotFoundError(f"no scrapy.cfg in {here} or above: pass project=, the folder of one")


def settings_of(run: Path, sources: Iterable[SourceLike] | Path | None) -> dict[str, object]:
    """Return the settings of a run in this folder: its state beside it, and no published schema."""
    state = run.parent / "walsh.sqlite3"
    given: dict[str, object] = {
        "WALSH_STATE_URL": f"sqlite:///{state}",
        "WALSH_BLOCKLIST_SCHEMA_URL": "",
        "STATS_DUMP": True,
    }
    if isinstance(sources, Path):
        given["WALSH_SOURCES"] = sources.resolve()
    elif sources is not None:
        given["WALSH_SOURCES"] = write_sources(run / "sources.toml", sources)
    return given


def environment_of(project: Path) -> dict[str, str]:
    """Return our environment as if started in `project`, whose scrapy.cfg names its settings."""
    config = ConfigParser()
    config.read(project / "scrapy.cfg", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCRAPY_")}
    path = os.pathsep.join(filter(None, (str(project), os.environ.get("PYTHONPATH"))))
    named = {"PYTHONPATH": path, "SCRAPY_SETTINGS_MODULE": config.get("settings", "default")}
    return kept | named | {"PYTHONUNBUFFERED": "1"}


def join_environments(environment: dict[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Return both environments as one, where PYTHONPATH has the folders of both."""
    paths = filter(None, (each.get("PYTHONPATH") for each in (others, environment)))
    return environment | dict(others) | {"PYTHONPATH": os.pathsep.join(paths)}
