"""What the raw driver cursor of `walsh_scrapy.state` saves: one visit's statements both ways.

    python -m benchmarks.statements [VISITS]

The same store methods run against the same database, once as they are and once with every statement
given to SQLAlchemy's `Connection.execute`, in turn. CPU time of this process counts, the least of
ten rounds of each. A first visit asks for robots.txt and the source and gives 20 entries; a later
visit is answered 304. Goal: the driver saves at least 5 % of what `benchmarks.overhead` finds for a
target, else it is not worth its code.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import OperationalError

from benchmarks.capacity import SERVER, new_database
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


def main(visits: int) -> None:
    """Measure SQLite, and PostgreSQL where there is one."""
    with tempfile.TemporaryDirectory() as folder:
        _measure(visits, f"sqlite:///{Path(folder, 'state.sqlite3')}", "SQLite")
    if _has_server():
        with new_database() as (url, _):
            _measure(visits, url, "PostgreSQL")


def _measure(visits: int, url: str, what: str) -> None:
    """Print what each kind of visit costs both ways."""
    for kind, visit in (("first visit", _first_visit), ("again, 304", _later_visit)):
        ours = plain = float("inf")
        for number in range(ROUNDS):
            base = number * 2 * visits
            ours = min(ours, _cost(url, visit, range(base, base + visits)))
            with _plain_sqlalchemy():
                plain = min(plain, _cost(url, visit, range(base + visits, base + 2 * visits)))
        print(
            f"{what}, {kind}: driver {ours:.0f} us, SQLAlchemy {plain:.0f} us; "
            f"{plain / ours:.2f} times as much, {(plain - ours) / 1000:.2f} ms a target"
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


def _has_server() -> bool:
    server = create_engine(SERVER, connect_args={"connect_timeout": 2})
    try:
        server.connect().close()
    except OperationalError:
        return False
    finally:
        server.dispose()
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
