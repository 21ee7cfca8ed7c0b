"""``walsh status``: what needs the attention of the operator."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.feeds.sources.loading import read_declarations
from walsh_scrapy.feeds.sources.source import SourcesError
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.files import atomic_file
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.problems import Problem, Severity, changed_since, in_order, problems_of
from walsh_scrapy.tools.call import Unusable, WrongCall
from walsh_scrapy.tools.show import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scrapy.settings import BaseSettings

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.sql import Terms
    from walsh_scrapy.tools.call import Call

_COLUMNS: Final = ("severity", "since", "subject", "command", "problem")
#: The numbers for a monitor: rows of a view by the values of a column, with a condition.
_COUNTED: Final = (
    ("sources", "problem", "is_declared"),
    ("hosts", "problem", ""),
    ("runs", "state", ""),
)


def run(call: Call) -> int:
    """Print the problems, and write the metrics; return 1 if one is worth an alarm."""
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.state import StateError

    arguments = call.arguments
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
            counts = _count(state) if arguments.prometheus and state else {}
            changes = None
            if arguments.since_last is not None:
                changes = _change_report(state, arguments.since_last, problems)
    except (BadSetting, StateError):
        if arguments.prometheus:  # because a monitor would otherwise see the old numbers
            problem = Problem(Severity.CRITICAL, "state", "")
            _write_metrics(arguments.prometheus, [problem], {})
        raise
    if arguments.prometheus:
        _write_metrics(arguments.prometheus, problems, counts)
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


def _count(state: State) -> Mapping[str, Mapping[str | None, int]]:
    """Return the number of rows of each view by the values of its column."""
    counts: dict[str, Mapping[str | None, int]] = {}
    for name, column, where in _COUNTED:
        columns = f"{column} AS value, count(*) AS number"
        rows = state.rows(f"readable_{name}", columns=columns, where=where, group_by=column)
        counts[f"{name}_by_{column}"] = {row["value"]: row["number"] for row in rows}
    return counts


def _write_metrics(
    path: str, problems: Sequence[Problem], counts: Mapping[str, Mapping[str | None, int]]
) -> None:
    """Write a file for the textfile collector of the Prometheus node exporter.

    The file is replaced at once. Raises WrongCall if it cannot be written.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise WrongCall(f"--prometheus {path}: the folder does not exist")
    severities = Counter(problem.severity.value for problem in problems)
    by_severity: dict[str | None, int] = {
        severity.value: severities[severity.value] for severity in Severity
    }
    lines = _gauge(
        "status_timestamp_seconds", "Time when this file was written.", {"": time.time()}
    )
    for name, values in {"problems_by_severity": by_severity, **counts}.items():
        metric, _, label = name.partition("_by_")
        samples = {f'{{{label}="{value or "none"}"}}': count for value, count in values.items()}
        lines += _gauge(metric, f"Number of {metric} by {label}.", samples)
    try:
        with atomic_file(target) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise WrongCall(f"--prometheus {path}: {error.strerror}") from None


def _gauge(name: str, help_text: str, samples: Mapping[str, float]) -> list[str]:
    """Return the lines of a metric; ``samples`` has the values by their labels."""
    head = [f"# HELP walsh_{name} {help_text}", f"# TYPE walsh_{name} gauge"]
    return head + [f"walsh_{name}{labels} {value}" for labels, value in samples.items()]


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
