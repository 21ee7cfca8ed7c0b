"""When a source is due again (R8, ruling 20). Times are epoch seconds, durations seconds."""

from __future__ import annotations

#: A source is never forgotten: however often it failed, it is tried again after 30 days.
LONGEST_REVISIT = 30 * 86_400.0


def due_again(fetched_at: float, min_revisit: float, failures: int = 0) -> float:
    """Return when a source may be fetched again after an attempt at ``fetched_at``.

    Each failure in a row after the first doubles the interval, up to 30 days.
    """
    doublings = min(max(failures - 1, 0), 40)
    return fetched_at + min(min_revisit * 2.0**doublings, max(LONGEST_REVISIT, min_revisit))
