"""The metrics of ``walsh status --prometheus FILE``, for the textfile collector of node exporter.

Each file has the same metrics with the same help texts, and each series has the name of the project
as the label `project`. So the files of several projects may lie in one folder. A series without a
value is 0, also if there is no state, because an alert on a missing series never fires.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy.utils.conf import closest_scrapy_cfg

from walsh_scrapy.files import atomic_file
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.problems import KINDS, SOURCE_PROBLEMS, Severity
from walsh_scrapy.tools.call import WrongCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scrapy.settings import BaseSettings

    from walsh_scrapy.policy.problems import Problem
    from walsh_scrapy.state import State
    from walsh_scrapy.state.sql import Terms

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
