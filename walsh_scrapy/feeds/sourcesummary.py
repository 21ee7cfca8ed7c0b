"""The summary of a run by source, from its stats and problems."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.crawl.declared import denials_by_gate, denied_cells, table
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.problems import SOURCE_PROBLEMS, describe_run_problem, run_problem
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import ReasonGroups, and_more, count_of
from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: The stats of denied sources, by gate.
_DENIED_SOURCES: Final = re.compile(r"walsh/sources/denied/(\w+)")
#: The start of the stats of exports that failed, as Scrapy names them.
_FAILED_EXPORTS: Final = "feedexport/failed_count/"
_COUNTED: Final = ("fetched", "unchanged", "deferred", "failed", "gone", "due", "not_due")
#: In the JSON: reasons of failures, hosts of each, and hosts that are deferred.
MAX_REASONS: Final = 50
MAX_HOSTS: Final = 20
MAX_DEFERRED_HOSTS: Final = 100
#: In the log: reasons of failures, hosts of each, and sites with Comment lines.
_MAX_REASON_LINES: Final = 4
_MAX_LINE_HOSTS: Final = 2
_MAX_SITES: Final = 3
#: The clean ends of a run: as Scrapy names it, and with requests that wait for a later run.
_FINISHED: Final = ("finished", "deferred")


class Problems:
    """The failures of a crawl by their reasons, and until when each host is deferred."""

    def __init__(self) -> None:
        self.failures = ReasonGroups()
        self.deferred: dict[str, float] = {}  #: by host: the earliest time, in epoch seconds
        self.unread_hosts: set[str] = set()  #: of sources that failed or were refused

    def failed(self, url: str, reason: str) -> None:
        """Count a source that failed; ``reason`` is one sentence."""
        self.failures.add(host_of(url), reason)

    def unread(self, url: str) -> None:
        """Note that a source failed, or that its site made it wait, and that this is new."""
        self.unread_hosts.add(host_of(url))

    def defer(self, url: str, until: float) -> None:
        """Note that a request is deferred until a time in epoch seconds."""
        host = host_of(url)
        self.deferred[host] = min(until, self.deferred.get(host, until))


# ---- counts ----


def is_by_source(stats: Mapping[str, Any]) -> bool:
    """Return True if the spider of a run visits declared sources."""
    return "walsh/sources/due" in stats


def source_counts(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of sources by outcome; ``denied`` is by gate."""
    counts: dict[str, Any] = {name: stats.get(f"walsh/sources/{name}", 0) for name in _COUNTED}
    return counts | {"denied": denials_by_gate(stats, _DENIED_SOURCES)}


def done_sources(stats: Mapping[str, Any]) -> int:
    """Return the number of sources that have an outcome in this run."""
    counts = source_counts(stats)
    ended = sum(counts[name] for name in ("fetched", "unchanged", "deferred", "failed", "gone"))
    return int(ended + sum(counts["denied"].values()))


def undelivered_count(stats: Mapping[str, Any]) -> int:
    """Return the number of new entries that a pipeline or an export may not have got.

    After an export that failed nobody knows which, so all of the run are counted.
    """
    if any(name.startswith(_FAILED_EXPORTS) for name in stats):
        return int(stats.get("walsh/entries/new", 0))
    return int(stats.get("walsh/items/undelivered", 0))


def error_of(summary: Mapping[str, Any], run: int | None) -> str:
    """Return why a run has failed, as a sentence for the log; "" if it has not.

    The log has the reason of an early end already.
    """
    errors: list[str] = []
    if summary["problem"] in ("nothing_read", "no_blocklist"):
        waiting = f"{summary['failed']} failed and {summary['deferred']} deferred"
        sentence = describe_run_problem(summary["problem"])
        is_unread = summary["problem"] == "nothing_read"
        errors.append(f"{sentence}: {waiting}" if is_unread else sentence)
    if summary["undelivered"]:
        entries = count_of(summary["undelivered"], "new entry was", "new entries were")
        again = f"`{program_name()} new --run {run} --json` prints the entries of this run"
        errors.append(f"{entries} not delivered, because a pipeline or an export failed; {again}")
    return "; ".join(errors)


def source_summary(
    stats: Mapping[str, Any], problems: Problems, reason: str, now: float
) -> dict[str, Any]:
    """Return the summary of a run by source, with its problems.

    ``reason`` is the end of the run, as Scrapy names it, ``now`` its moment in epoch seconds.
    """
    summary = source_counts(stats)
    deferred_hosts = sorted(problems.deferred.items(), key=lambda item: item[1])
    summary |= {
        "finish_reason": reason,
        "problem": run_problem(
            reason,
            {
                "read": summary["fetched"] + summary["unchanged"],
                "failed_hosts": len(problems.unread_hosts),
                "undelivered": undelivered_count(stats),
                "no_blocklist": stats.get("walsh/blocklist/missing", 0),
            },
        ),
        "not_reached": max(summary["due"] - done_sources(stats), 0),
        "deferred_until": stats.get("walsh/sources/deferred_until"),
        "deferred_hosts": dict(deferred_hosts[:MAX_DEFERRED_HOSTS]),
        "stopped": stats.get("walsh/sources/resting", 0),
        "next_due": stats.get("walsh/sources/next_due"),
        "new_entries": stats.get("walsh/entries/new", 0),
        "known_entries": stats.get("walsh/entries/known", 0),
        "repeated_entries": stats.get("walsh/entries/repeated", 0),
        "undelivered": undelivered_count(stats),
        "comments": stats.get("walsh/robots/comments", {}),
        "failures": [
            {
                "reason": group.reason,
                "sources": group.sources,
                "hosts": group.hosts[:MAX_HOSTS],
                "more_hosts": max(0, len(group.hosts) - MAX_HOSTS),
            }
            for group in problems.failures.largest_first()[:MAX_REASONS]
        ],
    }
    return summary | {"next": _next_steps(summary, now)}


def _next_steps(summary: Mapping[str, Any], now: float) -> list[str]:
    """Return the next steps of the operator, one phrase each; none if all is well."""
    steps = []
    if summary["failed"]:
        shows = "shows the start of each failure, and the next visit"
        steps.append(f"`{program_name()} sources` {shows}")
    if still_due := summary["deferred"] + summary["not_reached"]:
        until = summary["deferred_until"] or 0.0
        is_later = until > now and summary["finish_reason"] in _FINISHED
        when = f" after {format_moment(until)}" if is_later else ""
        steps.append(f"start the run again{when}: {count_of(still_due, 'source')} still due")
    return steps


# ---- the lines of the log ----


def source_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each outcome that any source had, and the next steps."""
    first = next(iter(summary["deferred_hosts"].items()), None)
    deferred = f"the first until {format_moment(first[1])}: {first[0]}" if first else ""
    next_due = summary["next_due"]
    next_visit = "" if next_due is None else f"the next one at {format_moment(next_due)}"
    unchanged = "304 Not Modified, or an llms.txt that was read before"
    gone = f"410: no visit before `{program_name()} sources resume URL`"
    rows = [
        ("fetched", summary["fetched"], ""),
        ("unchanged", summary["unchanged"], unchanged),
        ("denied", *denied_cells(summary)),
        ("deferred", summary["deferred"], deferred),
        ("failed", summary["failed"], *_failure_lines(summary)),
        ("gone", summary["gone"], gone),
        ("not reached", summary["not_reached"], "still due: the run ended before"),
        ("not due", summary["not_due"], next_visit),
        ("stopped", summary["stopped"], "gone (410) on an earlier visit"),
        ("new entries", summary["new_entries"], f"{summary['known_entries']} known before"),
        ("repeated", summary["repeated_entries"], "twice in one document, counted once"),
        ("undelivered", summary["undelivered"], "a pipeline or an export failed"),
        ("problems", sum(summary["problems"].values()), _problem_words(summary["problems"])),
    ]
    steps = [f"next: {step}" for step in summary["next"]]
    return [*table(rows), *_comment_lines(summary["comments"]), *steps]


def _problem_words(problems: Mapping[str, int]) -> str:
    """Return which problems sources have now, the most common one first."""
    counts = sorted(problems.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number} {SOURCE_PROBLEMS[problem]}" for problem, number in counts)


def _failure_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return why sources failed: the most common reasons with hosts, and the number of others."""
    lines = []
    unexplained = summary["failed"]
    for failure in summary["failures"][:_MAX_REASON_LINES]:
        hosts = failure["hosts"][:_MAX_LINE_HOSTS]
        hidden = len(failure["hosts"]) + failure["more_hosts"] - len(hosts)
        more = f" and {count_of(hidden, 'more host')}" if hidden else ""
        lines.append(f"{failure['sources']} {failure['reason']}: {', '.join(hosts)}{more}")
        unexplained -= failure["sources"]
    if lines and unexplained > 0:
        lines.append(f"{unexplained} for other reasons")
    return lines


def _comment_lines(comments: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the Comment lines of robots.txt files to the operator, of the first sites with any."""
    lines = [
        f"{origin}/robots.txt has the comment: {' · '.join(texts)}"
        for origin, texts in islice(comments.items(), _MAX_SITES)
    ]
    hidden = len(comments) - _MAX_SITES
    return [*lines, f"{and_more(hidden)} with comments in robots.txt"] if hidden > 0 else lines


def source_progress(stats: Mapping[str, Any]) -> str:
    """Return what a run has done: `57 of 206 sources done, 31 new entries, 4 failed, 3 denied`."""
    counts = source_counts(stats)
    counts["denied"] = sum(counts["denied"].values())
    parts = [
        f"{done_sources(stats)} of {count_of(counts['due'], 'source')} done",
        count_of(stats.get("walsh/entries/new", 0), "new entry", "new entries"),
        f"{counts['failed']} failed",
    ]
    names = ("unchanged", "denied", "deferred", "gone")
    return ", ".join([*parts, *(f"{counts[name]} {name}" for name in names if counts[name])])
