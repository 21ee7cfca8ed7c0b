"""Runs, and reports.

There is one row for each crawl, and for each command that fetched a URL by hand. The latest times
of all tables are read here too: a time in the future was written by a wrong clock. A report is what
`walsh status --since-last NAME` has reported, so that the next call tells what changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, delete, func, insert, literal, or_, select, union_all, update

from walsh_scrapy.policy.wording import storable
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.evidence import keep_copy
from walsh_scrapy.state.records import upsert
from walsh_scrapy.state.tables import (
    blocklist,
    entries,
    hosts,
    reports,
    requests,
    robots,
    runs,
    sources,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection


_MAX_NAME_CHARS: Final = 255  #: of a spider, and of the reason for the end of a run
_RUNS_SQL: Final = select(runs)
_TIMES: Final = (
    runs.c.started_at,
    runs.c.ended_at,
    requests.c.requested_at,
    entries.c.first_seen,
    sources.c.visited_at,
    hosts.c.request_ended_at,
    hosts.c.hold_since,
    robots.c.requested_at,
    blocklist.c.requested_at,
)
_NEWEST_FIRST: Final = (runs.c.started_at.desc(), runs.c.id.desc())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run. Times are in epoch seconds."""

    id: int = 0  #: given by the database
    spider: str
    command: str = ""  #: the command that fetched a URL by hand, such as `shell`; "" for a crawl
    started_at: float
    ended_at: float | None = None  #: None while it goes on, and forever if it was killed
    finish_reason: str = ""  #: as Scrapy names it
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    online_at: float | None = None  #: when an answer first proved that the network works

    @property
    def is_over(self) -> bool:
        """Whether the run has ended by itself. False for a run that goes on or was killed."""
        return self.ended_at is not None


class RunStore(Store):
    """Writes the start and the end of runs, and reads runs."""

    def begin(self, run: RunRecord, declared: bytes | str = b"") -> int:
        """Record the start of a run, and return its number.

        ``declared`` is the document of the sources that the run declares, which is kept as a copy,
        or the name of such a copy; empty for none. The settings of the run refer to the copy.
        """
        row = {
            "spider": _storable_name(run.spider),
            "command": run.command,
            "started_at": run.started_at,
            "versions": json.dumps(dict(run.versions)),
        }

        attempts: list[int] = []

        def write(connection: Connection) -> int:
            for earlier in attempts:  # the answer to its COMMIT was lost
                connection.execute(delete(runs).where(runs.c.id == earlier))
            settings = dict(run.settings)
            if isinstance(declared, str):
                settings["declared"] = declared
            elif declared:
                name = keep_copy(connection, "sources", declared, now=run.started_at, last=None)
                settings["declared"] = name
            new = insert(runs).values(**row, settings=json.dumps(settings)).returning(runs.c.id)
            attempts.append(connection.execute(new).scalar_one())
            return attempts[-1]

        return self._database.write(write)

    def end(
        self,
        number: int,
        ended: float,
        finish_reason: str,
        summary: Mapping[str, Any],
        online_at: float | None = None,
    ) -> None:
        """Record the end of a run, its summary, and when it proved that the network works."""
        values = {
            "ended_at": ended,
            "finish_reason": _storable_name(finish_reason),
            "summary": json.dumps(dict(summary)),
            "online_at": online_at,
        }
        self._database.change(update(runs).where(runs.c.id == number).values(values))

    def is_network_proven(self, number: int, visited: float | None) -> bool:
        """Return True if another run than this one proved the network since the last visit.

        ``visited`` is the time of the visit. For a source that was never visited it is the start of
        the first run with the same declared sources.
        """
        is_other_run = runs.c.id != number
        since = visited
        if since is None:
            run = self.find(number)
            declared = run.settings.get("declared") if run else None
            is_same_declaration = runs.c.settings.contains(f'"declared": "{declared}"')
            since = self._database.scalar(
                select(func.min(runs.c.started_at)).where(is_other_run, is_same_declaration)
            )
        if since is None:
            return False
        proven_at = self._database.scalar(select(func.max(runs.c.online_at)).where(is_other_run))
        return proven_at is not None and proven_at > since

    def find(self, number: int) -> RunRecord | None:
        """Return a run by its number, or None."""
        row = self._database.first(_RUNS_SQL.where(runs.c.id == number))
        return None if row is None else run_of(row)

    def latest(
        self,
        max_runs: int,
        since: float | None = None,
        until: float | None = None,
        *,
        only_crawls: bool = False,
    ) -> list[RunRecord]:
        """Return the newest runs, at most ``max_runs``, the newest first.

        ``since`` leaves out runs that began earlier, ``until`` runs that began or ended later; both
        are in epoch seconds. ``only_crawls`` leaves out commands that fetched a URL by hand.
        """
        query = _RUNS_SQL.order_by(*_NEWEST_FIRST).limit(max_runs)
        if since is not None:
            query = query.where(runs.c.started_at >= since)
        if until is not None:
            ended = func.coalesce(runs.c.ended_at, runs.c.started_at)
            query = query.where(runs.c.started_at <= until, ended <= until)
        if only_crawls:
            query = query.where(runs.c.command == "")
        return [run_of(row) for row in self._all(query)]

    def has_ended_crawl(self, besides: int | None) -> bool:
        """Return True if a crawl has ended, except for the run with the number ``besides``."""
        ended = select(runs.c.id).where(
            runs.c.command == "", runs.c.ended_at.is_not(None), runs.c.id != (besides or 0)
        )
        return self._database.first(ended.limit(1)) is not None

    def first_beside(self, run: RunRecord) -> float:
        """Return the start of the first run that was still going on when another one began.

        In epoch seconds. A run that was killed went on at least until its last new entry.
        """
        found_later = select(entries.c.run).where(entries.c.first_seen >= run.started_at)
        goes_on = or_(runs.c.ended_at >= run.started_at, runs.c.id.in_(found_later))
        first = select(func.min(runs.c.started_at)).where(
            goes_on, runs.c.started_at <= run.started_at
        )
        started_at: float | None = self._database.scalar(first)
        return run.started_at if started_at is None else started_at

    def moments(self) -> dict[str, float]:
        """Return the latest time of each table of the state that has one, in epoch seconds."""
        newest = (select(literal(column.table.name), func.max(column)) for column in _TIMES)
        moments = [(moment, name) for name, moment in self._all(union_all(*newest)) if moment]
        # A table may have several times: sorted, the latest one is written last and stays.
        return {name: moment for moment, name in sorted(moments)}


def _storable_name(text: str) -> str:
    """Return a text that a project chose, in a form that its column accepts."""
    return storable(text)[:_MAX_NAME_CHARS]


def run_of(row: Sequence[Any]) -> RunRecord:
    """Return the run of a row with all columns of the table, in their order."""
    values = dict(zip(runs.c.keys(), row, strict=True))
    for name in ("versions", "settings", "summary"):
        values[name] = json.loads(values[name])
    return RunRecord(**values)


# Reports

_REPORTED_SQL: Final = select(reports.c.problems).where(reports.c.name == bindparam("of"))


class ReportStore(Store):
    """Remembers the problems of the last report under each name."""

    def exchange(self, name: str, problems: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Remember the problems of a report, and return those of the one before it."""
        row = {"name": name, "problems": storable(json.dumps(problems))}

        def write(connection: Connection) -> list[dict[str, Any]]:
            before = connection.scalar(_REPORTED_SQL, {"of": name})
            upsert(connection, reports, row)
            return json.loads(before) if before else []

        return self._database.write(write)
