"""Problems outside of the state database, as rows like those of the view `readable_problems`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.feeds.sources.loading import read_declarations
from walsh_scrapy.feeds.sources.source import SourcesError
from walsh_scrapy.feeds.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.state import State

_EMPTY: Final = {"subject": None, "since": None, "advice": None, "command": None}


def problem_row(severity: str, problem: str, **columns: str) -> dict[str, Any]:
    """Return a row of `readable_problems`; columns without a value are None."""
    return {
        **_EMPTY,
        "severity": severity,
        "problem": problem,
        "rank": 0 if severity == "critical" else 1,
        **columns,
    }


def check_sources_file(
    state: State | None, name: str, *, is_needed: bool
) -> Iterator[dict[str, Any]]:
    """Yield a row if the sources file cannot be read.

    A file that has not changed since the last crawl is not read again. If the file is not needed,
    it may be missing, because the spiders of a project may declare their sources themselves.
    """
    file = Path(name)
    if not is_needed and not file.exists():
        return
    try:
        if state is None or not Stores(state).has_read(file):
            for _ in read_declarations(file, []):
                pass
    except SourcesError as error:
        yield problem_row(
            "critical",
            f"the sources file cannot be read: {error}",
            subject=name,
            advice="No crawl can start.",
        )
