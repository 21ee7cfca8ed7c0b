"""The facts that ``walsh status`` checks, read from the state, the sources file and the disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import make_url

from walsh_scrapy.crawl.blocklist import load_local_list
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.sources.loading import Declaration, declarations, merged, repetitions, warn
from walsh_scrapy.sources.source import SourcesError
from walsh_scrapy.tools import hosts, runs
from walsh_scrapy.tools.sources.overview import build_overview
from walsh_scrapy.tools.status.findings import MOST_ROWS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.hosts import WorkerRow
    from walsh_scrapy.tools.hosts import HostRow
    from walsh_scrapy.tools.runs import RunRow
    from walsh_scrapy.tools.sources.overview import SourceRow

#: Crawls that are looked at, the newest first, and their greatest age in seconds.
MOST_RUNS: Final = 1000
LONGEST: Final = 30 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts of one moment. Times are epoch seconds, None where there is none."""

    now: float
    first_run: float | None = None  #: the start of the first known run
    good_run: float | None = None  #: the end of the last good one
    bad_run: RunRow | None = None  #: the last run that ended, if it was not good
    open_runs: tuple[RunRow, ...] = ()  #: without an end, the newest first
    has_blocklist: bool = True  #: whether one is published
    list_error: str = ""  #: why the local list cannot be used
    list_checked: float | None = None
    list_refresh: float = 0.0  #: seconds
    sources: int = 0  #: that are declared
    failing: int = 0  #: of these
    failing_rows: tuple[SourceRow, ...] = ()  #: the first of them
    refused: tuple[SourceRow, ...] = ()  #: of all sources; no others are in memory
    sources_error: str = ""  #: why the sources file cannot be used
    held: tuple[HostRow, ...] = ()  #: on hold
    workers: tuple[WorkerRow, ...] = ()  #: crawls that share the work now
    disk: str = ""  #: the folder of the state; "" on a server, whose disk cannot be seen
    disk_free: int = 0  #: bytes
    latest: Mapping[str, float]  #: the latest time of each table


def gather(state: State, options: Options, file: str | None) -> Facts:
    """Read the facts; ``file`` is another sources file than ``WALSH_SOURCES``, or None.

    Raises StateError if the state fails.
    """
    now = state.now()
    until = now + CLOCK_SKEW  # later times were written by a wrong clock
    latest = state.runs.latest(MOST_RUNS, now - LONGEST, until, only_crawls=True)
    with state.log() as log:
        rows = runs.build_overview(log, latest, now)
    ended = [row for row in rows if row.record.is_over]
    checked, refresh = _blocklist(state, options.blocklist_url)
    sources = _sources(state, options, file, now)
    folder = _folder(options.state_url)
    return Facts(
        now=now,
        first_run=latest[-1].started_at if latest else None,
        good_run=next((row.record.ended_at for row in ended if row.is_good), None),
        bad_run=next((row for row in ended[:1] if not row.is_good), None),
        open_runs=tuple(row for row in rows if not row.record.is_over),
        list_error=_local_list_error(options),
        has_blocklist=bool(options.blocklist_url),
        list_checked=checked,
        list_refresh=refresh,
        sources=sources.number,
        failing=sources.failing,
        failing_rows=tuple(row for row in sources.rows if row.record.failures),
        refused=tuple(row for row in sources.rows if row.record.is_refused),
        sources_error=sources.error,
        held=tuple(row for row in hosts.build_overview(state) if row.snapshot.hold),
        workers=tuple(state.hosts.workers()),
        disk=folder,
        disk_free=shutil.disk_usage(folder).free if folder else 0,
        latest=state.runs.moments(),
    )


def _blocklist(state: State, url: str) -> tuple[float | None, float]:
    copy = state.blocklist.find(url) if url else None
    if copy is None:
        return None, 0.0
    return copy.requested_at, Blocklist.of_text(copy.adopted).refresh.total_seconds()


def _local_list_error(options: Options) -> str:
    try:
        load_local_list(options.blocklist_file)
    except BadSetting as error:
        return str(error)
    return ""


class _Sources(NamedTuple):
    """The declared sources."""

    number: int = 0
    failing: int = 0
    rows: Sequence[SourceRow] = ()  #: the first that fail, and all that are refused
    error: str = ""  #: why the file cannot be used


def _sources(state: State, options: Options, given: str | None, now: float) -> _Sources:
    """Return the sources of the file.

    A project whose spiders declare none has neither a file nor sources in the state.
    """
    if given is None and not Path(options.sources).exists() and not state.sources.urls():
        return _Sources()
    file, (failing, refused) = Path(given or options.sources), state.sources.in_trouble()
    warnings: list[str] = []
    try:
        found = declarations(file, warnings)
        keys, chosen, repeated = _chosen(found, failing, refused)
    except SourcesError as error:
        return _Sources(error=str(error))
    warn(file, warnings + repetitions(repeated))
    rows = build_overview(chosen, state, options, now, only_these=True).declared
    return _Sources(len(keys), len(keys & failing), rows)


def _chosen(
    declared: Iterable[Declaration], failing: Container[int], refused: Container[int]
) -> tuple[set[int], Sequence[Source], list[str]]:
    """Return the keys of the sources, those that become rows, and the places of repeated ones."""
    keys, number, repeated = set[int](), 0, list[str]()
    chosen: dict[int, Source] = {}
    for place, source in declared:
        key = url_key(source.url)
        if key in keys:
            repeated.append(place)
        is_first_failing = key in failing and key not in keys and number < MOST_ROWS
        number += is_first_failing
        if key in chosen:
            chosen[key] = merged(chosen[key], source)
        elif is_first_failing or key in refused:
            chosen[key] = source
        keys.add(key)
    return keys, [*chosen.values()], repeated


def _folder(state_url: str) -> str:
    url = make_url(state_url)
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return str(Path(str(url.database)).absolute().parent) if is_file else ""
