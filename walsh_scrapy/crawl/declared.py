"""What a crawl asks the feed crawler, if its spider declares sources.

`Crawl.declared` is the `Declared` below in a project's own crawl, which declares nothing, and its
subclass `walsh_scrapy.feeds.feedcrawl.FeedCrawl` in a declared crawl. The subclass is named by its
path, so that an own crawl imports nothing of the feed crawler.

`Declared` has the questions about the crawl as a whole, such as the summary of a run by request.
Those about one request are in the `Visit` of its ticket (`crawl.ticket`). The feed crawler makes
its requests and records its results itself, by `Queue` and `Hosts`, as any component may.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from scrapy.utils.misc import load_object

from walsh_scrapy.crawl.startup import Kind
from walsh_scrapy.policy.problems import describe_run_problem, run_problem
from walsh_scrapy.policy.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.state.retention import Deletable


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
            ("retried", summary["retried"], "after 429, 503 or a failed robots.txt"),
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


#: The subclass for declared crawls.
FEED_CRAWL: Final = "walsh_scrapy.feeds.feedcrawl.FeedCrawl"


class LastVisit(NamedTuple):
    """The end of the last visit of a source, in epoch seconds; None if it was never visited."""

    at: float | None


class RunSummary(NamedTuple):
    """The summary of a run."""

    subject: str  #: what is counted
    record: dict[str, Any]  #: for the row of the run, as JSON has it
    lines: list[str]  #: for the log
    error: str = ""  #: why the run has failed, if it has


class Declared:
    """What a spider declares. These are the answers for a spider that declares nothing.

    It is made with the first component that needs it. The spider exists then, except in `shell`.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl

    #: The packages that read its documents, whose versions the row of the run has.
    packages: ClassVar[tuple[str, ...]] = ()

    @property
    def is_forced(self) -> bool:
        """Whether the run ignores due times; its row in the state says so."""
        return False

    @property
    def folder(self) -> Path | None:
        """The folder of the sources file; None without one."""
        return None

    def delays(self) -> Mapping[str, float]:
        """Return the delays that are declared, by the names of their hosts, in seconds.

        Called once, when the queue is made: before the first request, and before the spider starts.
        A wrong declaration ends the process with one line here. Delays of single requests are those
        of their visits (`Visit.delay`).
        """
        return {}

    def declaration(self) -> bytes | str:
        """Return what the run declares: a document, or the name of a copy that the state has.

        Called once, when the spider opens, for the row of the run. b"" means nothing. It must not
        read every source if the state has a copy. Raises StateUnavailable.
        """
        return b""

    def last_visit(self, host: str) -> LastVisit | None:  # noqa: ARG002 - for the subclass
        """Return the latest earlier visit of what is visited at a host now; None if nothing is.

        Called for a connection that failed for a reason that may lie on either side: if another run
        proved the network since, the host is to blame.
        """
        return None

    def old_rows(self, now: float) -> Iterable[Deletable]:  # noqa: ARG002 - for the subclass
        """Return the rows about declarations that are too old to be needed.

        Called at the begin and at the end of a run, where the state is pruned.
        """
        return ()

    def progress(self, stats: Mapping[str, Any]) -> tuple[str, int | None]:
        """Return what a run has done, and how many visits remain; None if nobody knows that."""
        return request_progress(stats), None

    def summary(
        self,
        stats: Mapping[str, Any],
        reason: str,
        now: float,  # noqa: ARG002 - for the subclass
    ) -> RunSummary:
        """Return the summary of a run that ended at ``now``, in epoch seconds.

        ``reason`` is the end of the run, as Scrapy names it.
        """
        record = request_summary(stats, reason)
        is_unsafe = record["problem"] == "no_blocklist"
        error = describe_run_problem(record["problem"]) if is_unsafe else ""
        return RunSummary("requests", record, request_lines(record), error)


def declared_of(crawl: Crawl) -> Declared:
    """Return what the spider of a crawl declares."""
    component: type[Declared] = Declared
    if crawl.kind is Kind.DECLARED:
        component = load_object(FEED_CRAWL)
    return component(crawl)
