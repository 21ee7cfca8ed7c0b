"""What a run without declared sources came to, read from Scrapy's stats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_GATES = ("blocklist", "robots", "scope", "publicweb")


def has_agenda(stats: Mapping[str, Any]) -> bool:
    """Tell whether a run's spider went by declared sources."""
    return "walsh/sources/due" in stats


def answer_lines(stats: Mapping[str, Any]) -> list[str]:
    """Return the summary of a run that follows links; what did not happen is left out."""
    denied = {gate: stats.get(f"walsh/{gate}/denied", 0) for gate in _GATES}
    by_gate = ", ".join(f"{count} by {gate}" for gate, count in denied.items() if count)
    deferred = stats.get("walsh/requests/deferred", 0)
    rows = (
        ("answered", stats.get("response_received_count", 0), "robots.txt included"),
        ("denied", sum(denied.values()), by_gate),
        ("undeclared", stats.get("walsh/scope/dropped", 0), "never asked for (R6)"),
        ("deferred", deferred, "they ask for a wait beyond this run"),
        ("asked again", stats.get("walsh/backoff/retried", 0), "after 429 or 503"),
    )
    return [
        f"{name:<12}{count:>7}{'   ' + remark if count else ''}"
        for name, count, remark in rows
        if count or name == "answered"
    ]
