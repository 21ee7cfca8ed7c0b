"""The move of a source (`policy.freshness`), as the row of the source has it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from walsh_scrapy.feeds.freshness import Move

if TYPE_CHECKING:
    from walsh_scrapy.state.records import SourceRecord


def move_of(record: SourceRecord) -> Move | None:
    """Return where permanent redirects lead, settled or not; None if they lead nowhere."""
    if record.moved_to is None:
        return None
    onward = None
    if record.onward_to is not None:
        onward = Move(record.onward_to, record.onward_since or 0.0, is_settled=False)
    since = record.moved_since or 0.0
    return Move(record.moved_to, since, record.move_settled, onward, record.move_failing_since)


def moved(record: SourceRecord, move: Move | None) -> SourceRecord:
    """Return the record with another move, or without one."""
    onward = move.onward if move else None
    return replace(
        record,
        moved_to=move.to if move else None,
        moved_since=move.since if move else None,
        move_settled=bool(move and move.is_settled),
        move_failing_since=move.failing_since if move else None,
        onward_to=onward.to if onward else None,
        onward_since=onward.since if onward else None,
    )
