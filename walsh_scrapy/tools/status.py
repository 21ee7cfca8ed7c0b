"""``walsh status``: what needs the attention of the operator, as lines and as metrics.

The file of ``--prometheus`` is for the textfile collector of node exporter. Each has the same
metrics with the same help texts, and each series has the name of the project as the label
`project`. So the files of several projects may lie in one folder. A series without a value is 0,
also if there is no state, because an alert on a missing series never fires.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy.utils.conf import closest_scrapy_cfg

from walsh_scrapy.feeds.sources.loading import read_declarations
from walsh_scrapy.feeds.sources.source import SourcesError
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.files import atomic_file
from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.problems import (
    KINDS,
    SOURCE_PROBLEMS,
    Problem,
    Severity,
    changed_since,
    in_order,
    problems_of,
)
from walsh_scrapy.tools.call import Unusable, WrongCall
from walsh_scrapy.tools.show import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scrapy.settings import BaseSettings

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.sql import Terms
    from walsh_scrapy.tools.call import Call

#: A source is overdue if it was due for longer than this, and nothing asked to wait.
OVERDUE_SECONDS: Final = 86_400.0


class Metric(NamedTuple):
    """A gauge, with the labels of its series beside `project`."""

    name: str
    help_text: str
    labels: Mapping[str, tuple[str, ...]]  #: all values of each label


NO_LABELS: Final[Mapping[str, tuple[str, ...]]] = {}
_STATUSES: Final = ("2xx", "3xx", "304", "4xx", "429", "5xx", "503", "other", "none")
_METRICS: Final = (
    Metric("status_timestamp_seconds", "Time when this file was written.", NO_LABELS),
    Metric(
        "problems",
        "Problems that walsh status lists.",
        {"kind": KINDS, "severity": tuple(severity.value for severity in Severity)},
    ),
    Metric(
        "last_good_run_timestamp_seconds",
        "End of the last crawl that ended without a problem, 0 if there is none.",
        NO_LABELS,
    ),
    Metric("last_run_duration_seconds", "Duration of the last crawl that ended.", NO_LABELS),
    Metric(
        "requests_last_day",
        "Requests of the last 24 hours by status; 304, 429 and 503 have series of their own, and "
        "none stands for no answer.",
        {"status": _STATUSES},
    ),
    Metric("new_entries_last_day", "New entries of the last 24 hours.", NO_LABELS),
    Metric("sources", "Declared sources by problem.", {"problem": (*SOURCE_PROBLEMS, "none")}),
    Metric("sources_due", "Declared sources that are due.", NO_LABELS),
    Metric(
        "sources_overdue",
        "Declared sources that are due for over a day, although nothing asks to wait.",
        NO_LABELS,
    ),
    Metric(
        "hosts",
        "Hosts by problem.",
        {"problem": ("hold", "unreachable", "server errors", "none")},
    ),
)

#: The values of series, by the name of the metric and the values of its labels.
Values = dict[tuple[str, ...], float]

_STATUS_SQL: Final = """CASE WHEN status IS NULL THEN 'none'
    WHEN status IN (304, 429, 503) THEN CAST(status AS TEXT)
    WHEN status BETWEEN 200 AND 599 THEN CAST(status / 100 AS TEXT) || 'xx' ELSE 'other' END"""
_OVERDUE_SQL: Final = """next_visit = 'now'
    AND CASE WHEN visited_at IS NULL THEN added_at ELSE due_at END < :overdue_since"""


def project_name(settings: BaseSettings) -> str:
    """Return the name of a project: its BOT_NAME, or the name of its folder if that is not set."""
    if settings.getpriority("BOT_NAME"):
        return str(settings["BOT_NAME"])
    config = closest_scrapy_cfg()
    return (Path(config).parent if config else Path.cwd()).name


def count_problems(problems: Iterable[Problem]) -> Values:
    """Return the number of problems by kind and severity."""
    counts = Counter((problem.code, problem.severity.value) for problem in problems)
    return {("problems", *labels): count for labels, count in counts.items()}


def read_values(state: State, files: Iterable[Terms]) -> Values:
    """Return the values that a state has. ``files`` are the sources files that count."""
    values: Counter[tuple[str, ...]] = Counter()
    for row in state.rows(
        "readable_requests",
        columns=f"{_STATUS_SQL} AS label, count(*) AS number",
        where="days_ago <= 1.0",
        group_by=_STATUS_SQL,
    ):
        values["requests_last_day", row["label"]] = row["number"]
    for row in state.rows(
        "readable_hosts", columns="problem, count(*) AS number", group_by="problem"
    ):
        values["hosts", row["problem"] or "none"] = row["number"]
    (row,) = state.rows(
        "readable_entries", columns="count(*) AS number", where="days_ago <= 1.0 AND NOT backfill"
    )
    values["new_entries_last_day",] = row["number"]
    overdue_since = rfc3339(state.now() - OVERDUE_SECONDS)
    for terms in files:
        for row in state.rows(
            "readable_sources",
            columns="problem, count(*) AS number, sum(CASE WHEN is_due THEN 1 ELSE 0 END) AS due, "
            f"sum(CASE WHEN {_OVERDUE_SQL} THEN 1 ELSE 0 END) AS overdue",
            where="is_declared",
            group_by="problem",
            params={"overdue_since": overdue_since},
            terms=terms,
        ):
            values["sources", row["problem"] or "none"] += row["number"]
            values["sources_due",] += row["due"]
            values["sources_overdue",] += row["overdue"]
    return dict(values) | _read_runs(state)


def _read_runs(state: State) -> Values:
    """Return the values about the crawls that have ended."""
    ended = "command IS NULL AND state = 'ended'"
    columns = "ended_at, duration"
    newest = "ended_at DESC, run DESC"
    values: Values = {}
    for run in state.rows("readable_runs", columns=columns, where=ended, order_by=newest, limit=1):
        values["last_run_duration_seconds",] = run["duration"]
    for run in state.rows(
        "readable_runs",
        columns=columns,
        where=f"{ended} AND problem IS NULL",
        order_by=newest,
        limit=1,
    ):
        values["last_good_run_timestamp_seconds",] = datetime.fromisoformat(
            run["ended_at"]
        ).timestamp()
    return values


def write_metrics(path: str, project: str, values: Values) -> None:
    """Write all series, and replace the file at once. Raises WrongCall if it cannot be written."""
    target = Path(path)
    if not target.parent.is_dir():
        raise WrongCall(f"--prometheus {path}: the folder does not exist")
    now: Values = {("status_timestamp_seconds",): time.time()}
    lines = "".join(f"{line}\n" for line in _lines(project, values | now))
    try:
        with atomic_file(target) as file:
            file.write(lines.encode())
    except OSError as error:
        raise WrongCall(f"--prometheus {path}: {error.strerror}") from None


def _lines(project: str, values: Values) -> Iterator[str]:
    """Yield the lines of a file in the text format of Prometheus."""
    for metric in _METRICS:
        yield f"# HELP walsh_{metric.name} {metric.help_text}"
        yield f"# TYPE walsh_{metric.name} gauge"
        for labels in product(*metric.labels.values()):
            named = {"project": project} | dict(zip(metric.labels, labels, strict=True))
            written = ",".join(f'{name}="{_escape(value)}"' for name, value in named.items())
            yield f"walsh_{metric.name}{{{written}}} {values.get((metric.name, *labels), 0)}"


def _escape(value: str) -> str:
    """Return the value of a label as the text format quotes it."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


_COLUMNS: Final = ("severity", "since", "subject", "command", "problem")


def run(call: Call) -> int:
    """Print the problems, and write the metrics; return 1 if one is worth an alarm."""
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.state import StateError

    arguments = call.arguments
    project = project_name(call.settings)
    try:
        with call.state_if_any() as state:
            problems = find_problems(
                call.settings,
                call.options,
                state,
                call.sources_file,
                is_named=bool(arguments.sources),
            )
            empty = f"no problem; {_describe_last_end(state)}{_describe_last_check(state)}"
            if arguments.prometheus:
                values = count_problems(problems)
                if state is not None:
                    values |= read_values(state, _files_that_count(call, state))
                write_metrics(arguments.prometheus, project, values)
            changes = None
            if arguments.since_last is not None:
                changes = _change_report(state, arguments.since_last, problems)
    except (BadSetting, StateError):
        if arguments.prometheus:  # because a monitor would otherwise see the old numbers
            problem = Problem(Severity.CRITICAL, "state", "")
            write_metrics(arguments.prometheus, project, count_problems([problem]))
        raise
    if changes is not None:
        if changes or not arguments.quiet:
            columns = ("change", *_COLUMNS)
            show(changes, columns, as_json=arguments.json, empty="nothing began or ended")
        return 1 if any(row["change"] == "began" for row in changes) else 0
    shown = [problem for problem in problems if problem.is_urgent or not arguments.quiet]
    if shown or not arguments.quiet:
        rows = [problem._asdict() for problem in shown]
        show(rows, _COLUMNS, as_json=arguments.json, empty=empty)
    return 1 if any(problem.is_urgent for problem in problems) else 0


def _change_report(
    state: State | None, name: str, problems: Iterable[Problem]
) -> list[dict[str, Any]]:
    """Return what began and ended since the last report with a name, and remember this one.

    Notes are left out. Without a state nothing is remembered, so its problems begin each time.
    """
    from walsh_scrapy.state import StateError

    urgent = [problem for problem in problems if problem.is_urgent]
    rows = [problem._asdict() for problem in urgent]
    if state is None:
        return changed_since([], rows)
    try:
        return changed_since(state.reports.exchange(name, rows), rows)
    except StateError as error:
        raise Unusable(f"--since-last {name} needs a role that may write: {error}") from None


def _describe_last_check(state: State | None) -> str:
    """Return a clause about the last check of the state's file; empty if there was none."""
    check = state.backups.last_check() if state else None
    return f"; the state was sound at {format_moment(check.at)}" if check else ""


def _describe_last_end(state: State | None) -> str:
    """Return a clause that says when the last crawl ended."""
    crawls = state.runs.latest(100, only_crawls=True) if state else []
    ends = [crawl.ended_at for crawl in crawls if crawl.ended_at is not None]
    return f"the last crawl ended at {format_moment(max(ends))}" if ends else "no crawl has ended"


_MIB: Final = 1024 * 1024
#: Less free space for the state database than this is a problem.
MIN_DISK_MIB: Final = 1024
CRITICAL_DISK_MIB: Final = 128


def find_problems(
    settings: BaseSettings,
    options: Options,
    state: State | None,
    sources_file: str,
    *,
    is_named: bool = False,
) -> list[Problem]:
    """Return the problems of a project, the worst first.

    ``is_named`` means that the operator named the sources file: then it must exist, and only its
    sources count. Raises StateError.
    """
    problems = [
        *_check_addon(settings, options),
        *_check_list(options),
        *_check_sources_file(state, sources_file, is_needed=is_named or _has_sources(state)),
        *_check_disk(options),
    ]
    if state is None:
        spider = "feeds" if Path(sources_file).exists() else "SPIDER"
        problem = "no crawl has run yet, or WALSH_STATE_URL names another database"
        command = f"scrapy crawl {spider}"
        problems.append(Problem(Severity.WARNING, "no_state", problem, command=command))
    else:
        terms = terms_of(state, sources_file, options) if is_named else None
        problems += _check_pages(state)
        problems += problems_of(state.rows("problem_facts", terms=terms))
    return in_order(problems)


def _files_that_count(call: Call, state: State) -> list[Terms]:
    """Return the terms of the sources file that the call names, or of all that were read lately."""
    from walsh_scrapy.state.sql import Terms

    if call.arguments.sources:
        return [terms_of(state, call.sources_file, call.options)]
    files = Stores(state).recent_files(state.now())
    return [Terms(file, call.options.min_revisit) for file in files]


def terms_of(state: State, sources_file: str, options: Options) -> Terms:
    """Return the terms with which views show the sources of a file, and the present settings."""
    from walsh_scrapy.state.sql import Terms

    return Terms(Stores(state).file_id(sources_file), options.min_revisit)


def _check_addon(settings: BaseSettings, options: Options) -> Iterator[Problem]:
    """Yield a problem if crawls of the project use no part of this add-on."""
    from walsh_scrapy.crawl.startup import ADDON, gates_of, has_addon

    if options.enabled and settings.getdict("ADDONS").get(ADDON) is not None:
        return  # the checks below import the add-on and all middlewares
    if not has_addon(settings) and not gates_of(settings):
        yield Problem(
            Severity.CRITICAL,
            "addon",
            "crawls run without this add-on: ADDONS or WALSH_ENABLED switches it off",
            "ADDONS",
            advice='Set ADDONS = {"walsh_scrapy.Addon": 500} at the end of settings.py.',
        )


def _check_list(options: Options) -> Iterator[Problem]:
    """Yield a problem if the operator's own blocklist cannot be used."""
    from walsh_scrapy.crawl.documents.publishedlist import load_local_list
    from walsh_scrapy.options import BadSetting

    try:
        load_local_list(options.blocklist_file)
    except BadSetting as error:
        name = str(options.blocklist_file)
        yield Problem(Severity.CRITICAL, "files", str(error), name, advice="No crawl can start.")


def _has_sources(state: State | None) -> bool:
    if state is None:
        return False
    rows = state.rows("readable_sources", columns="url", where="is_declared", limit=1)
    return bool(list(rows))


def _check_sources_file(state: State | None, name: str, *, is_needed: bool) -> Iterator[Problem]:
    """Yield a problem if the sources file cannot be read.

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
        problem = f"the sources file cannot be read: {error}"
        yield Problem(Severity.CRITICAL, "files", problem, name, advice="No crawl can start.")


def _check_disk(options: Options) -> Iterator[Problem]:
    """Yield a problem if the disk of an SQLite database is nearly full."""
    from walsh_scrapy.state.database import files_of

    for file in files_of(options.state_url)[:1]:
        folder = next(folder for folder in file.parents if folder.exists())
        free = shutil.disk_usage(folder).free / _MIB
        if free < MIN_DISK_MIB:
            severity = Severity.CRITICAL if free < CRITICAL_DISK_MIB else Severity.WARNING
            problem = f"only {free:,.0f} MiB of disk space are free; a full disk ends every crawl"
            advice = "Free some disk space."
            yield Problem(severity, "disk", problem, str(folder), advice=advice)


def _check_pages(state: State) -> Iterator[Problem]:
    """Yield a problem if the last check of the state's file found a damaged page."""
    check = state.backups.last_check()
    if check and check.damage:
        yield Problem(
            Severity.CRITICAL,
            "state",
            f"the state is damaged, found at {format_moment(check.at)}: {check.damage}",
            advice="No crawl can start. Restore a backup, or move the file away.",
        )
