"""The summary of a run by request, from its stats, and what summaries of any run are made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.problems import run_problem
from walsh_scrapy.policy.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: The stats of denied requests, by gate.
_DENIED_REQUESTS: Final = re.compile(r"walsh/(?!sources/)(\w+)/denied")
#: Outcomes with a line even if their count is 0.
_ALWAYS: Final = ("responses", "fetched", "new entries")


def request_summary(stats: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the summary of a run; ``reason`` is its end, as Scrapy names it."""
    missing = int(stats.get("walsh/blocklist/missing", 0))
    return {
        "finish_reason": reason,
        "problem": run_problem(reason, {"no_blocklist": missing}),
        "responses": stats.get("response_received_count", 0),
        "denied": denials_by_gate(stats, _DENIED_REQUESTS),
        "undeclared": stats.get("walsh/scope/dropped", 0),
        "deferred": stats.get("walsh/requests/deferred", 0),
        "retried": stats.get("walsh/backoff/retried", 0),
    }


def request_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each outcome that any request had."""
    return table(
        [
            ("responses", summary["responses"], "robots.txt included"),
            ("denied", *denied_cells(summary)),
            ("undeclared", summary["undeclared"], "not requested (R6)"),
            ("deferred", summary["deferred"], "to a later run; the log has the reasons"),
            ("retried", summary["retried"], "after 429 or 503"),
        ]
    )


def request_progress(stats: Mapping[str, Any]) -> str:
    """Return what a run has done: `57 responses`."""
    return count_of(stats.get("response_received_count", 0), "response")


def denials_by_gate(stats: Mapping[str, Any], pattern: re.Pattern[str]) -> dict[str, int]:
    """Return the denials by gate, in the order of their names."""
    matches = ((pattern.fullmatch(name), count) for name, count in sorted(stats.items()))
    return {match[1]: count for match, count in matches if match}


def denied_cells(summary: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of denials, and how many each gate has denied."""
    by_gate = ", ".join(f"{count} by {gate}" for gate, count in summary["denied"].items())
    return sum(summary["denied"].values()), by_gate


def table(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the lines of each row with a count: its name, its count and its remarks."""
    lines = []
    for name, count, *remarks in rows:
        if count or name in _ALWAYS:
            first, *further = remarks if count and remarks else [""]
            lines.append(f"{name:<12}{count:>7}   {first}".rstrip())
            lines += [f"{'':<22}{remark}" for remark in further]
    return lines
