"""The problems of a project: those in its state, and those of its files and of the disk.

`walsh status` and the report list the same ones.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.feeds.sources.loading import read_declarations
from walsh_scrapy.feeds.sources.source import SourcesError
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.problems import Problem, Severity, in_order, problems_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.sql import Terms

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
