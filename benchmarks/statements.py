"""What the raw driver cursor of `walsh_scrapy.state` saves: one visit's statements both ways.

    python -m benchmarks.statements [VISITS]

The same store methods run against the same database, once as they are and once with every statement
given to SQLAlchemy's `Connection.execute`, in turn. CPU time of this process counts, the least of
ten rounds of each. A first visit asks for robots.txt and the source and gives 20 entries; a later
visit is answered 304. Goal: the driver saves at least 5 % of what `benchmarks.overhead` finds for a
target, else it is not worth its code.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection

from benchmarks.databases import states
from benchmarks.report import Figure, Report, run
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.policy.robots.access import RobotsCopy
from walsh_scrapy.state import State, _statements, database
from walsh_scrapy.state.entries import EntryRecord
from walsh_scrapy.state.evidence import RequestRecord
from walsh_scrapy.state.sourcerecord import SourceRecord

ROUNDS = 10
ENTRIES = 20
BACKOFF = Backoff(2.0, 300.0, Random(0))
Visit = Callable[[State, int], None]


def main(report: Report, visits: int) -> None:
    """Measure SQLite, and PostgreSQL where there is one."""
    for what, url in states():
        _measure(report, visits, url, what)


def _measure(report: Report, visits: int, url: str, what: str) -> None:
    """Report what each kind of visit costs both ways."""
    for kind, visit in (("first visit", _first_visit), ("again, 304", _later_visit)):
        ours = plain = float("inf")
        for number in range(ROUNDS):
            base = number * 2 * visits
            ours = min(ours, _cost(url, visit, range(base, base + visits)))
            with _plain_sqlalchemy():
                plain = min(plain, _cost(url, visit, range(base + visits, base + 2 * visits)))
        report.add(
            f"{what}, {kind}",
            Figure("CPU by the driver", ours, "us", peer="SQLAlchemy", peer_value=plain),
            Figure("saved a target", (plain - ours) / 1000, "ms"),
        )


def _cost(url: str, visit: Visit, numbers: range) -> float:
    """Return the CPU microseconds of one visit."""
    with closing(State(url, time.time)) as state:
        visit(state, -1)  # statements are compiled once in a crawl
        began = time.process_time()
        for number in numbers:
            visit(state, number)
        return (time.process_time() - began) / len(numbers) * 1e6


def _first_visit(state: State, number: int) -> None:
    host = f"h{number}.example"
    state.sources.find(f"http://{host}/feed")
    state.robots.find(f"http://{host}:80")
    _exchange(state, host, "robots.txt")
    state.robots.keep(f"http://{host}:80", RobotsCopy(1.0, 200, b"User-agent: *\n"))
    _exchange(state, host, "feed")
    source = _source(host)
    state.sources.commit(source, [_entry(source.url, at) for at in range(ENTRIES)])


def _later_visit(state: State, number: int) -> None:
    """Visit a host whose robots.txt is at hand; the first visits left all of them."""
    host = f"h{number}.example"
    state.sources.find(f"http://{host}/feed")
    state.robots.find(f"http://{host}:80")
    _exchange(state, host, "feed")
    state.sources.commit(_source(host))


def _exchange(state: State, host: str, path: str) -> None:
    state.ledger.take(host, 0.0, 60.0)
    record = RequestRecord(1.0, host, f"http://{host}/{path}", "robots: allowed", 200, 0.1)
    state.ledger.release(host, Exchange(interval=0.0), BACKOFF, record)


def _source(host: str) -> SourceRecord:
    url = f"http://{host}/feed"
    return SourceRecord(url=url, kind="feed", fetched_at=1.0, validator_url=url, etag=b'"1"')


def _entry(source: str, number: int) -> EntryRecord:
    key = f"{source} {number}"
    return EntryRecord(
        key=key[-64:],
        page_key=f"page of {key}"[-64:],
        source=source,
        kind="feed",
        first_seen=1.0,
        item='{"title": "Post"}' * 20,
    )


@contextmanager
def _plain_sqlalchemy() -> Iterator[None]:
    """Run every statement by SQLAlchemy instead of the driver's cursor."""
    methods: dict[str, Callable[..., Any]] = {
        "first": lambda self, connection, row: connection.execute(self._core, row).one_or_none(),
        "all": lambda self, connection, row: connection.execute(self._core, row).all(),
        "run": lambda self, connection, row: connection.execute(self._core, row).rowcount,
        "run_each": lambda self, connection, rows: connection.execute(self._core, rows),
    }
    with ExitStack() as patches:
        patches.enter_context(patch.multiple(_statements.Statement, **methods))
        patches.enter_context(patch.object(database, "run_sql", Connection.exec_driver_sql))
        yield


if __name__ == "__main__":
    run(main, 100)
