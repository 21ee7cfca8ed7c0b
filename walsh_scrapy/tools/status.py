"""``walsh status``: what needs the attention of the operator."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.files import atomic_file
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.tools.call import WrongCall
from walsh_scrapy.tools.problems import check_sources_file, problem_row
from walsh_scrapy.tools.show import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scrapy.settings import BaseSettings

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

_COLUMNS: Final = ("severity", "since", "subject", "command", "problem")
_MIB: Final = 1024 * 1024
#: Less free space for the state database than this is a problem.
MIN_DISK_MIB: Final = 1024
CRITICAL_DISK_MIB: Final = 128
#: The numbers for a monitor: rows of a view by the values of a column, with a condition.
_COUNTED: Final = (
    ("sources", "problem", "is_declared"),
    ("hosts", "problem", ""),
    ("runs", "state", ""),
)


def run(call: Call) -> int:
    """Print the problems, and write the metrics; return 1 if there is a problem."""
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.state import StateError

    arguments = call.arguments
    try:
        with call.state_if_any() as state:
            problems = list(_find_problems(call, state))
            empty = f"no problem; {_describe_last_end(state)}{_describe_last_check(state)}"
            counts = _count(state) if arguments.prometheus and state else {}
    except (BadSetting, StateError):
        if arguments.prometheus:  # because a monitor would otherwise see the old numbers
            _write_metrics(arguments.prometheus, [problem_row("critical", "")], {})
        raise
    if problems or not arguments.quiet:
        show(problems, _COLUMNS, as_json=arguments.json, empty=empty)
    if arguments.prometheus:
        _write_metrics(arguments.prometheus, problems, counts)
    return 1 if problems else 0


def _find_problems(call: Call, state: State | None) -> Iterator[Mapping[str, Any]]:
    """Yield the problems of files and of the disk, and then the problems in the database."""
    options = call.options
    yield from _check_addon(call.settings, options)
    yield from _check_files(call, state)
    yield from _check_disk(options)
    if state is None:
        problem = "no crawl has run yet, or WALSH_STATE_URL names another database"
        spider = "feeds" if Path(call.sources_file).exists() else "SPIDER"
        yield problem_row("warning", problem, command=f"scrapy crawl {spider}")
        return
    yield from _check_pages(state)
    yield from state.rows("readable_problems", order_by="rank, since, problem, subject")


def _check_addon(settings: BaseSettings, options: Options) -> Iterator[Mapping[str, Any]]:
    """Yield a problem if crawls of the project use no part of this add-on."""
    from walsh_scrapy.crawl.startup import ADDON, gates_of, has_addon

    if options.enabled and settings.getdict("ADDONS").get(ADDON) is not None:
        return  # the checks below import the add-on and all middlewares
    if not has_addon(settings) and not gates_of(settings):
        yield problem_row(
            "critical",
            "crawls run without this add-on: ADDONS or WALSH_ENABLED switches it off",
            subject="ADDONS",
            advice='Set ADDONS = {"walsh_scrapy.Addon": 500} at the end of settings.py.',
        )


def _check_files(call: Call, state: State | None) -> Iterator[Mapping[str, Any]]:
    """Yield the problems of the files that a crawl needs."""
    from walsh_scrapy.crawl.documents.publishedlist import load_local_list
    from walsh_scrapy.options import BadSetting

    try:
        load_local_list(call.options.blocklist_file)
    except BadSetting as error:
        yield problem_row(
            "critical",
            str(error),
            subject=str(call.options.blocklist_file),
            advice="No crawl can start.",
        )
    has_sources = state is not None and any(
        state.rows("readable_sources", columns="url", where="is_declared", limit=1)
    )
    is_needed = has_sources or bool(call.arguments.sources)
    yield from check_sources_file(state, call.sources_file, is_needed=is_needed)


def _check_disk(options: Options) -> Iterator[Mapping[str, Any]]:
    """Yield a problem if the disk of an SQLite database is nearly full."""
    from walsh_scrapy.state.database import files_of

    for file in files_of(options.state_url)[:1]:
        folder = next(folder for folder in file.parents if folder.exists())
        free = shutil.disk_usage(folder).free / _MIB
        if free < MIN_DISK_MIB:
            severity = "critical" if free < CRITICAL_DISK_MIB else "warning"
            problem = f"only {free:,.0f} MiB of disk space are free; a full disk ends every crawl"
            yield problem_row(
                severity, problem, subject=str(folder), advice="Free some disk space."
            )


def _check_pages(state: State) -> Iterator[Mapping[str, Any]]:
    """Yield a problem if the last check of the state's file found a damaged page."""
    check = state.backups.last_check()
    if check and check.damage:
        yield problem_row(
            "critical",
            f"the state is damaged, found at {format_moment(check.at)}: {check.damage}",
            advice="No crawl can start. Restore a backup, or move the file away.",
        )


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
    path: str,
    problems: Sequence[Mapping[str, Any]],
    counts: Mapping[str, Mapping[str | None, int]],
) -> None:
    """Write a file for the textfile collector of the Prometheus node exporter.

    The file is replaced at once. Raises WrongCall if it cannot be written.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise WrongCall(f"--prometheus {path}: the folder does not exist")
    severities = Counter(row["severity"] for row in problems)
    zeros = {"critical": 0, "warning": 0}
    lines = _gauge(
        "status_timestamp_seconds", "Time when this file was written.", {"": time.time()}
    )
    for name, values in {"problems_by_severity": zeros | severities, **counts}.items():
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
