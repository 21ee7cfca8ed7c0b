"""The state: everything that outlives a run, in one database, with a store for each kind of row."""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from walsh_scrapy.state.database import Database, exists
from walsh_scrapy.state.engine import StateError
from walsh_scrapy.state.evidence import BlocklistStore, EvidenceStore, Log, RobotsStore
from walsh_scrapy.state.hoststore import HostStore, old_hosts
from walsh_scrapy.state.retention import BackupStore, delete_in_turn
from walsh_scrapy.state.runstore import ReportStore, RunStore
from walsh_scrapy.state.sql import NO_TERMS, Terms
from walsh_scrapy.state.tables import STATE_ID_SQL
from walsh_scrapy.state.upgrades import upgrade as upgrade_state
from walsh_scrapy.state.views import ViewQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from walsh_scrapy.state.retention import Deletable

__all__ = ["State", "StateError"]


class State:
    """The state database and its stores. Raises StateError if it cannot be opened.

    ``clock`` returns epoch seconds. By default it is the clock of the database, which is the same
    for all processes that share the state. If the database fails later,
    every method of a store raises ``wrap_error(StateError)``: by default that error itself. A
    crawl passes a function that returns `StateUnavailable`, so that the current request is deferred
    to a later run. ``may_wait`` returns whether the state may wait for a server that went away.
    A state of an older schema is refused without ``upgrade``, a function that gets a line for each
    step of its upgrade.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] | None = None,
        wrap_error: Callable[[StateError], Exception] = lambda error: error,
        may_wait: Callable[[], bool] = lambda: True,
        upgrade: Callable[[str], None] | None = None,
    ) -> None:
        upgrade_with = partial(upgrade_state, report=upgrade) if upgrade else None
        self.database = Database(url, wrap_error, may_wait, clock, upgrade_with)
        self.write = self.database.write
        self.read = self.database.read
        self.now = self.database.now
        self.hosts = HostStore(self.database)
        self.robots = RobotsStore(self.database)
        self.blocklist = BlocklistStore(self.database)
        self.evidence = EvidenceStore(self.database)
        self.runs = RunStore(self.database)
        self.reports = ReportStore(self.database)
        self.backups = BackupStore(self.database)

    @property
    def id(self) -> str:
        """The id of this state. A noticed copy has another one, and so has a moved state."""
        return str(self.database.scalar(STATE_ID_SQL))

    def rows(
        self,
        view: str,
        *,
        columns: str = "*",
        where: str = "",
        group_by: str = "",
        order_by: str = "",
        limit: int | None = None,
        params: Mapping[str, Any] | None = None,
        terms: Terms | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a view (``readable_sources``, ...) as dictionaries, one by one.

        ``columns``, ``where``, ``group_by`` and ``order_by`` are SQL about the columns of the view,
        with ``:name`` for each of ``params``; ``terms`` replace what the state knows. Booleans are
        ``bool``, times are RFC 3339 texts, missing values None. All rows are from the moment at
        which the first one is read, by the clock of this state. The database is only read, and need
        not have the stored views. Raises StateError if it fails.
        """
        query = ViewQuery(view, columns, where, group_by, order_by, limit, terms or NO_TERMS)
        return self.database.rows(query, params or {})

    @contextmanager
    def log(self) -> Iterator[Log]:
        """Open the request log as it is now; rows that are written during the block are not seen.

        No crawl waits for it. Raises StateError if the database fails.
        """
        with self.database.snapshot() as connection:
            yield Log(connection)

    def prune(
        self,
        now: float,
        log_seconds: float,
        may_continue: Callable[[], bool],
        further: Iterable[Deletable] = (),
    ) -> bool:
        """Delete rows that are too old to be needed; ``now`` is in epoch seconds.

        Requests and denials are deleted after ``log_seconds``; hosts, and robots.txt files
        after 90 days. ``further`` are other old rows. Visited sources and entries are kept.
        ``may_continue`` is called before each small transaction; if it returns False, the pruning
        ends, and the result is False.
        """
        groups: list[Deletable] = [*self.evidence.old_rows(now, log_seconds), *further]
        groups += self.robots.old_rows(now), old_hosts(now)
        return delete_in_turn(self.database, groups, may_continue)

    @classmethod
    @contextmanager
    def existing(
        cls, url: str, upgrade: Callable[[str], None] | None = None
    ) -> Iterator[State | None]:
        """Open the state at ``url`` for a block; None if it does not exist, which creates nothing.

        Raises StateError if it cannot be opened.
        """
        if not exists(url):
            yield None
            return
        with closing(cls(url, upgrade=upgrade)) as state:
            yield state

    def close(self) -> None:
        """Close the database; committed rows stay."""
        self.database.close()
