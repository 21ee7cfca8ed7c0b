"""``walsh status``: the problems of crawls and of this machine, for you and for a monitor."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.tools.call import WrongCall
from walsh_scrapy.tools.files import atomic_file
from walsh_scrapy.tools.problems import check_sources_file, problem_row
from walsh_scrapy.tools.show import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

_COLUMNS: Final = ("severity", "since", "subject", "command", "problem")
_MIB: Final = 1024 * 1024
#: Free MiB where the state is.
MIN_DISK_MIB: Final = 1024
CRITICAL_DISK_MIB: Final = 128
#: What is counted for a monitor: the views, a column of each, and which rows.
_COUNTED: Final = (
    ("sources", "problem", "is_declared"),
    ("hosts", "problem", ""),
    ("runs", "state", ""),
)


def run(call: Call) -> int:
    """Print the problems, and write the metrics; return 1 if there is a problem."""
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.state import StateError

    given = call.arguments
    try:
        with call.state_if_any() as state:
            problems = list(_find_problems(call, state))
            empty = f"no problem; {_last_end(state)}"
            counts = _count(state) if given.prometheus and state else {}
    except (BadSetting, StateError):
        if given.prometheus:  # else a monitor would see the numbers of an earlier moment
            _write_metrics(given.prometheus, [problem_row("critical", "")], {})
        raise
    if problems or not given.quiet:
        show(problems, _COLUMNS, as_json=given.json, empty=empty)
    if given.prometheus:
        _write_metrics(given.prometheus, problems, counts)
    return 1 if problems else 0


def _find_problems(call: Call, state: State | None) -> Iterator[Mapping[str, Any]]:
    """Yield the problems that no database knows, and then those of the state."""
    options = call.options
    yield from _check_files(call, state)
    yield from _check_disk(options)
    if state is None:
        problem = "there is no state yet, or crawls have another WALSH_STATE_URL"
        spider = "feeds" if Path(call.sources_file).exists() else "SPIDER"
        yield problem_row("warning", problem, command=f"scrapy crawl {spider}")
        return
    yield from state.rows("readable_problems", order_by="rank, since, problem, subject")


def _check_files(call: Call, state: State | None) -> Iterator[Mapping[str, Any]]:
    """Yield the errors of files without which no crawl starts."""
    from walsh_scrapy.crawl.blocklist import load_local_list
    from walsh_scrapy.options import BadSetting

    try:
        load_local_list(call.options.blocklist_file)
    except BadSetting as error:
        subject = str(call.options.blocklist_file)
        yield problem_row("critical", str(error), subject=subject, advice="No crawl can start.")
    has_sources = state is not None and any(
        state.rows("readable_sources", columns="url", where="is_declared", limit=1)
    )
    is_needed = has_sources or bool(call.arguments.sources)
    yield from check_sources_file(state, call.sources_file, is_needed=is_needed)


def _check_disk(options: Options) -> Iterator[Mapping[str, Any]]:
    """Yield a problem if the disk of an SQLite state is nearly full."""
    from walsh_scrapy.state.database import files_of

    for file in files_of(options.state_url)[:1]:
        folder = next(folder for folder in file.parents if folder.exists())
        free = shutil.disk_usage(folder).free / _MIB
        if free < MIN_DISK_MIB:
            severity = "critical" if free < CRITICAL_DISK_MIB else "warning"
            problem = f"{free:,.0f} MiB are free; a full disk ends each crawl"
            yield problem_row(severity, problem, subject=str(folder), advice="Free some space.")


def _last_end(state: State | None) -> str:
    """Return when the last crawl ended, as a clause."""
    crawls = state.runs.latest(100, only_crawls=True) if state else []
    ends = [crawl.ended_at for crawl in crawls if crawl.ended_at is not None]
    return f"the last crawl ended at {format_moment(max(ends))}" if ends else "no crawl has ended"


def _count(state: State) -> Mapping[str, Mapping[str | None, int]]:
    """Return the numbers of rows of each view by the values of its column."""
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
    """Write metrics of Prometheus for the textfile collector of its node exporter.

    The file is replaced as a whole. Raises WrongCall if it cannot be written.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise WrongCall(f"--prometheus {path}: its folder does not exist")
    severities = Counter(row["severity"] for row in problems)
    zeros = {"critical": 0, "warning": 0}
    lines = _gauge("status_timestamp_seconds", "Time of the status.", {"": time.time()})
    for name, values in {"problems_by_severity": zeros | severities, **counts}.items():
        metric, _, label = name.partition("_by_")
        samples = {f'{{{label}="{value or "none"}"}}': count for value, count in values.items()}
        lines += _gauge(metric, f"{metric} by {label}.", samples)
    try:
        with atomic_file(target) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise WrongCall(f"--prometheus {path}: {error.strerror}") from None


def _gauge(name: str, help_text: str, samples: Mapping[str, float]) -> list[str]:
    """Return the lines of a metric; ``samples`` has its values by their labels."""
    head = [f"# HELP walsh_{name} {help_text}", f"# TYPE walsh_{name} gauge"]
    return head + [f"walsh_{name}{labels} {value}" for labels, value in samples.items()]
