"""The row of a run in the state, and its summary there and in the log.

A summary counts by source or by request, as about ten lines and as a JSON object, which the state
keeps; ``walsh_scrapy/summary.schema.json`` is its schema.
"""

from __future__ import annotations

import logging
import platform
import re
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from scrapy import signals

from walsh_scrapy import __version__
from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.startup import gate_names
from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.identity import SPEC_VERSION
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.wording import and_more, count_of, shorten
from walsh_scrapy.programname import program_name
from walsh_scrapy.sources.source import declaration
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.state.runs import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy import Spider
    from scrapy.crawler import Crawler

    from walsh_scrapy.crawl.crawl import Crawl
    from walsh_scrapy.crawl.messages import Signer
    from walsh_scrapy.crawl.problems import Problems
    from walsh_scrapy.options import Options

logger = logging.getLogger(__name__)

#: The packages of commands that run a spider.
_SCRAPYS: Final = "scrapy.commands."
_OUR_COMMANDS: Final = "walsh_scrapy.tools."
_PACKAGES: Final = ("scrapy", "twisted", "feedparser", "markdown-it-py")
_DENIED: Final = "walsh/sources/denied/"
_STAT: Final = re.compile(r"walsh/(?!sources/)(\w+)/denied")
#: Reasons of failures in the object, hosts of each, and hosts that are deferred.
MOST_REASONS: Final = 50
MOST_HOSTS: Final = 20
MOST_DEFERRED: Final = 100
#: Reasons of failures that have a line, and hosts that a line names; the others are counted.
_REASON_LINES: Final = 3
_LINE_HOSTS: Final = 2
#: Sites whose Comment lines are shown; the others are counted.
_MOST_SITES: Final = 3
#: The clean ends of a run: as Scrapy names it, and with requests that wait for a later run.
_FINISHED: Final = ("finished", "deferred")

#: Outcomes with a line even if there are none.
_ALWAYS: Final = ("responses", "fetched", "new entries")
_Row = tuple[str, int, str]


class Summary(Component):
    """Writes the row of a run when the spider opens, and completes it when the spider closes.

    The requests and entries of the run name the row. The summary is in it and in the log, even for
    a run that ends early.
    """

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl)
        self._context = crawl.context
        crawl.crawler.signals.connect(self.spider_opened, signals.spider_opened)
        crawl.crawler.signals.connect(self.spider_closed, signals.spider_closed)

    def spider_opened(self, spider: Spider) -> None:
        """Record the begin. If the state fails, the crawl ends for that reason."""
        context = self._context
        declaring = spider if isinstance(spider, DeclaringSpider) else DeclaringSpider(spider.name)
        run = RunRecord(
            spider=spider.name,
            command=command_of(self._crawl.crawler, spider),
            started_at=context.started_at,
            versions=versions(),
            settings=settings_of(context.options, self._crawl.signer) | {"force": declaring.force},
        )
        try:
            # The name of the copy of the sources file, or a document of the declared sources.
            declared: bytes | str = (
                context.state.declaration(file, context.clock.now())
                if (file := self._crawl.sources_file)
                else declaration(declaring.sources)
            )
            context.run = context.state.runs.begin(run, declared)
        except StateUnavailable as error:
            logger.debug("the start of the run is not recorded: %s", error)

    def spider_closed(self, reason: str) -> None:
        """Record the end, and log the summary; ``reason`` is why, as Scrapy names it."""
        context, problems, spider = self._context, self._crawl.problems, self._crawl.crawler.spider
        stats, now = self._crawl.stats.get_stats(), context.clock.now()
        if context.run is not None:
            summary = {
                "run": context.run,
                "spider": spider.name if spider else "",
                "started_at": context.started_at,
                "ended_at": now,
                "finish_reason": reason,
            } | counts_of(stats, problems, reason, now)
            try:
                online_at = context.connectivity.proven_at
                context.state.runs.end(context.run, now, reason, summary, online_at)
            except StateUnavailable as error:
                logger.debug("the end of the run is not recorded: %s", error)
        lines = summary_lines(stats, problems, reason, now)
        what = "sources" if is_by_source(stats) else "requests"
        logger.info("run %s; %s:\n  %s", reason, what, "\n  ".join(lines))
        counts = SourceCounts.of(stats)
        if counts.none_was_read:
            logger.error("no source was read, and %d failed", counts.failed)


def command_of(crawler: Crawler, spider: Spider) -> str:
    """Return the command that requests a URL by hand, or "" for a crawl (decision 39).

    `fetch`, `parse` and `check` give the spider another ``start``, `shell` only opens the engine,
    and our commands have spiders that are named after them.
    """
    if not crawler.crawling:
        return "shell"
    start = type(spider).start.__module__
    if start.startswith(_OUR_COMMANDS):
        return spider.name
    return start.removeprefix(_SCRAPYS) if start.startswith(_SCRAPYS) else ""


def versions() -> dict[str, str]:
    """Return the versions of the contract, of Python and of the packages that read and request."""
    found = {"contract": SPEC_VERSION, "python": platform.python_version()}
    found["walsh-scrapy"] = __version__  # even in a clone and in an egg
    return found | {package: version(package) for package in _PACKAGES}


def settings_of(options: Options, signer: Signer | None) -> dict[str, Any]:
    """Return the options in force, as JSON has them, and which key signs.

    ``signing_key`` is the thumbprint of that key, "" if none signs, and not the path of its file.
    """
    key = signer.key_id if signer else ""
    return options.for_record() | {"signing_key": key}


def is_by_source(stats: Mapping[str, Any]) -> bool:
    """Return True if the spider of a run visits declared sources."""
    return "walsh/sources/due" in stats


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """The number of sources by outcome, and of their entries.

    ``deferred_until`` and ``next_due`` are in epoch seconds.
    """

    fetched: int
    unchanged: int
    denied: Mapping[str, int]  #: by gate
    deferred: int
    deferred_until: float | None
    failed: int
    gone: int
    stopped: int  #: gone (410) on an earlier visit
    due: int
    not_due: int
    next_due: float | None
    new_entries: int
    known_entries: int
    comments: Mapping[str, tuple[str, ...]]  #: the Comment lines of robots.txt, by origin

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> SourceCounts:
        """Read the stats of a run."""
        names = ("fetched", "unchanged", "deferred", "failed", "gone", "due", "not_due")
        return cls(
            **{name: stats.get(f"walsh/sources/{name}", 0) for name in names},
            denied={
                name.removeprefix(_DENIED): count
                for name, count in sorted(stats.items())
                if name.startswith(_DENIED)
            },
            deferred_until=stats.get("walsh/sources/deferred_until"),
            stopped=stats.get("walsh/sources/resting", 0),
            next_due=stats.get("walsh/sources/next_due"),
            new_entries=stats.get("walsh/entries/new", 0),
            known_entries=stats.get("walsh/entries/known", 0),
            comments=stats.get("walsh/robots/comments", {}),
        )

    @property
    def done(self) -> int:
        """The number of sources with an outcome in this run."""
        ended = self.fetched + self.unchanged + self.deferred + self.failed + self.gone
        return ended + sum(self.denied.values())

    @property
    def not_reached(self) -> int:
        """The number of sources that are still due because the run ended before."""
        return max(self.due - self.done, 0)

    @property
    def none_was_read(self) -> bool:
        """True if sources failed, and none was fetched or unchanged: `scrapy crawl` exits with 1.

        Denied, deferred and later sources have not failed, but they are not a success either.
        """
        return self.failed > 0 and self.fetched + self.unchanged == 0


def request_counts(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a run without declared sources; ``denied`` is by gate, even others."""
    denying = gate_names(found[1] for found in map(_STAT.fullmatch, stats) if found)
    return {
        "responses": stats.get("response_received_count", 0),
        "denied": {gate: stats.get(f"walsh/{gate}/denied", 0) for gate in denying},
        "undeclared": stats.get("walsh/scope/dropped", 0),
        "deferred": stats.get("walsh/requests/deferred", 0),
        "retried": stats.get("walsh/backoff/retried", 0),
    }


def counts_of(stats: Mapping[str, Any], problems: Problems, how: str, now: float) -> dict[str, Any]:
    """Return the counts of a run: by source with its problems, or by request without any.

    ``now`` is its end, in epoch seconds.
    """
    if not is_by_source(stats):
        return request_counts(stats)
    counts = SourceCounts.of(stats)
    until = sorted(problems.deferred.items(), key=lambda each: each[1])
    return asdict(counts) | {
        "not_reached": counts.not_reached,
        "failures": [
            {
                "reason": group.reason,
                "sources": group.sources,
                "hosts": group.hosts[:MOST_HOSTS],
                "more_hosts": max(0, len(group.hosts) - MOST_HOSTS),
            }
            for group in problems.failures.largest_first()[:MOST_REASONS]
        ],
        "deferred_hosts": dict(until[:MOST_DEFERRED]),
        "next": next_steps(counts, how, now),
    }


def summary_lines(stats: Mapping[str, Any], problems: Problems, how: str, now: float) -> list[str]:
    """Return the summary of a run, a line for each outcome that any source or request had.

    ``how`` is the end of the run, as Scrapy names it, ``now`` in epoch seconds.
    """
    if not is_by_source(stats):
        remarks = {
            "responses": "robots.txt included",
            "undeclared": "not requested (R6)",
            "deferred": "to a later run; the log has the reasons",
            "retried": "after 429 or 503",
        }
        of_run = request_counts(stats)
        remarks["denied"], of_run["denied"] = _by_gate(of_run["denied"])
        return _table((name, count, remarks[name]) for name, count in of_run.items())
    counts = SourceCounts.of(stats)
    by_gate, denied = _by_gate(counts.denied)
    next_due = "" if counts.next_due is None else format_moment(counts.next_due)
    rows = [
        ("fetched", counts.fetched, ""),
        ("unchanged", counts.unchanged, "304 Not Modified, or an llms.txt that was read before"),
        ("denied", denied, by_gate),
        ("deferred", counts.deferred, _deferred(problems.deferred)),
        *_failed(counts.failed, problems),
        ("gone", counts.gone, f"410: no visit before `{program_name()} sources resume URL`"),
        ("not reached", counts.not_reached, "still due: the run ended before"),
        ("not due", counts.not_due, next_due and f"the next one at {next_due}"),
        ("stopped", counts.stopped, "gone (410) on an earlier visit"),
        ("new entries", counts.new_entries, f"{counts.known_entries} known before"),
    ]
    steps = (f"next: {step}" for step in next_steps(counts, how, now))
    return [*_table(rows), *_comments(counts.comments), *steps]


def next_steps(counts: SourceCounts, how: str, now: float) -> list[str]:
    """Return the next steps of the operator, one phrase each; none if all is well.

    A source that was deferred until a past moment may be requested at once.
    """
    steps = []
    if counts.failed:
        shows = "shows the start of each failure, and the next visit"
        steps.append(f"`{program_name()} sources` {shows}")
    still_due = counts.deferred + counts.not_reached
    if still_due:
        until = counts.deferred_until or 0.0
        when = f" after {format_moment(until)}" if until > now and how in _FINISHED else ""
        steps.append(f"start the run again{when}: {count_of(still_due, 'source')} still due")
    return steps


def _failed(failed: int, problems: Problems) -> list[_Row]:
    """Return the row of the failures, and rows without a name for its further reasons."""
    groups = problems.failures.largest_first()
    # One reason more takes no more room than the line that counts it.
    shown = _REASON_LINES if len(groups) > _REASON_LINES + 1 else len(groups)
    remarks = [group.line(_LINE_HOSTS) for group in groups[:shown]]
    if rest := groups[shown:]:
        sources = sum(group.sources for group in rest)
        hosts = tuple(dict.fromkeys(host for group in rest for host in group.hosts))
        reasons = count_of(len(rest), "more reason")
        remarks.append(f"{sources} for {reasons}: {shorten(hosts, _LINE_HOSTS)}")
    names = ("failed", *[""] * len(remarks))
    return [(name, failed, remark) for name, remark in zip(names, remarks or [""], strict=False)]


def _deferred(until_by_host: Mapping[str, float]) -> str:
    if not until_by_host:
        return ""
    hosts = sorted(until_by_host, key=until_by_host.__getitem__)
    first = format_moment(until_by_host[hosts[0]])
    return f"the first until {first}: {shorten(tuple(hosts), _LINE_HOSTS)}"


def _comments(comments: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the comments of robots.txt files to the operator, of the first sites with any."""
    lines = [
        f"{origin}/robots.txt has the comment: {' · '.join(texts)}"
        for origin, texts in islice(comments.items(), _MOST_SITES)
    ]
    left = len(comments) - _MOST_SITES
    return [*lines, f"{and_more(left)} with comments in robots.txt"] if left > 0 else lines


def _table(rows: Iterable[_Row]) -> list[str]:
    """Return a line for each row with a count; a remark is only added to a count above 0.

    A row without a name goes on with the row above: it has a remark only.
    """
    return [
        f"{name:<12}{count if name else '':>7}{f'   {remark}' if remark and count else ''}"
        for name, count, remark in rows
        if count or name in _ALWAYS
    ]


def _by_gate(denied: Mapping[str, int]) -> tuple[str, int]:
    """Return the number of denials of each gate, in words, and of all."""
    told = ", ".join(f"{count} by {gate}" for gate, count in denied.items() if count)
    return told, sum(denied.values())
