"""The note of the state that crawls of a folder use: ``.scrapy/walsh-state`` has its id.

A crawl with a wrong `WALSH_STATE_URL` begins a new state, and visits every source again. The note
tells such a state from the first one of a project. A state that is not new may have another id for
good reasons (it was moved, or a copy of it was noticed), so its note is renewed without a word.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from walsh_scrapy.files import atomic_file

if TYPE_CHECKING:
    from pathlib import Path

    from walsh_scrapy.crawl.context import Context

logger = logging.getLogger(__name__)

_NOTE: Final = ".scrapy/walsh-state"
_MAX_NOTE_BYTES: Final = 100


def report_new_state(context: Context, folder: Path | None) -> None:
    """Log at the end of a crawl that its state is new, and note its id in a folder.

    A state is new until a crawl has ended in it. If the folder, that of the sources file, has the
    note of another state, that is worth a warning. Raises StateUnavailable and StateError.
    """
    state = context.state
    if state.database.is_in_memory:
        return
    noted_id = _read_note(folder) if folder else None
    if not state.runs.has_ended_crawl(besides=context.run):
        if noted_id in (None, state.id):
            logger.info("the state %s is new: no crawl ended in it before", state.database)
        else:
            logger.warning(
                "the state %s is new, but crawls with sources in %s used another one: what that "
                "one knows of visits, entries and holds is unknown here. If you did not choose a "
                "new state, set WALSH_STATE_URL to the other one",
                state.database,
                folder,
            )
    if folder and noted_id != state.id:
        _write_note(folder, state.id)


def _read_note(folder: Path) -> str | None:
    """Return the id of the state that a folder notes; None if there is no note."""
    try:
        with (folder / _NOTE).open("rb") as file:
            return file.read(_MAX_NOTE_BYTES).decode("ascii", "replace").strip() or None
    except OSError:
        return None


def _write_note(folder: Path, state_id: str) -> None:
    """Note the id of a state. Nothing depends on it, so a folder that is read-only is no error."""
    try:
        with atomic_file(folder / _NOTE) as file:
            file.write(f"{state_id}\n".encode())
    except OSError as error:
        logger.debug("the state is not noted in %s: %s", folder / _NOTE, error)
