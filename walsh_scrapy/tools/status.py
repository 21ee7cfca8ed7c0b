"""``walsh status``: what needs the attention of the operator."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.feeds.sources.loading import read_declarations
from walsh_scrapy.feeds.sources.source import SourcesError
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.problems import Problem, Severity, changed_since, in_order, problems_of
from walsh_scrapy.tools.call import Unusable
from walsh_scrapy.tools.metrics import count_problems, project_name, read_values, write_metrics
from walsh_scrapy.tools.show import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy.settings import BaseSettings

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.sql import Terms
    from walsh_scrapy.tools.call import Call

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
