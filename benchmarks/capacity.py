"""What one process can do, and two on one state: the figures behind docs/scale.md.

    python -m benchmarks.capacity [HOSTS]

Hosts with one feed of 20 entries each and nothing to wait for, crawled by one process and by two
shards at once, into SQLite and into the PostgreSQL of this machine; then all again, all 304. The
web shares the machine's CPUs with them. No goal: it tells where the first limit lies.
"""

import os
import resource
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine, text

from benchmarks.overhead import feed_of
from walsh_scrapy.testing.crawl import Crawl, start_crawl
from walsh_scrapy.testing.project import find_project
from walsh_scrapy.testing.web import LoopbackWeb, Reply, Site

SERVER = "postgresql+psycopg://postgres@127.0.0.1:5432/test"
PROJECT = find_project(Path(__file__).parent)


def main(hosts: int) -> None:
    """Measure each state with one process and with two."""
    for processes in (1, 2):
        with tempfile.TemporaryDirectory() as name:
            file = Path(name, "state.sqlite3")
            _measure(hosts, processes, f"sqlite:///{file}", "SQLite")
            print(f"  {file.stat().st_size / hosts / 1024:.1f} KiB of state a target")
    for processes in (1, 2):
        with new_database() as (url, connection):
            _measure(hosts, processes, url, "PostgreSQL")
            commits, size = connection.execute(
                text(
                    "SELECT xact_commit, pg_database_size(datname) FROM pg_stat_database "
                    "WHERE datname = :name"
                ),
                {"name": url.rpartition("/")[2]},
            ).one()
            print(f"  {commits / hosts / 2:.1f} transactions a visit")
            print(f"  {size / hosts / 1024:.1f} KiB of database a target")


def _measure(hosts: int, processes: int, state: str, what: str) -> None:
    """Visit every host twice, and print rates and CPU of both visits."""
    feeds = [feed_of(number, full=True) for number in range(hosts)]
    pages = [Reply(feed, content_type="application/rss+xml", etag='"1"') for feed in feeds]
    sites = [
        Site(f"h{number}.example", "User-agent: *\n", {"/feed": page})
        for number, page in enumerate(pages)
    ]
    print(f"{what}, processes: {processes}")
    with LoopbackWeb(*sites) as web, tempfile.TemporaryDirectory() as name:
        for visit in ("first visit", "again, 304"):
            web.clear()
            began = resource.getrusage(resource.RUSAGE_CHILDREN)
            running = [
                _start(web, Path(name), state, f"{part}/{processes}")
                for part in range(1, processes + 1)
            ]
            if any(crawl.wait(900).exit_code for crawl in running):
                raise SystemExit("a crawl failed")
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            log = web.log
            seconds = max(hit.ended for hit in log) - min(hit.started for hit in log)
            cpu = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
            print(
                f"  {visit}: {hosts / seconds:.0f} targets a second, "
                f"{len(log) / hosts:.1f} requests and {cpu / hosts * 1e3:.1f} ms of CPU a target"
            )


def _start(web: LoopbackWeb, folder: Path, state: str, shard: str) -> Crawl:
    return start_crawl(
        web,
        folder=folder / shard.replace("/", "-"),
        project=PROJECT,
        sources=[f"http://{site.host}/feed" for site in web.sites],
        settings={"WALSH_STATE_URL": state, "LOG_LEVEL": "WARNING"},
        arguments={"shard": shard, "force": "1"},
    )


@contextmanager
def new_database() -> Iterator[tuple[str, Connection]]:
    """Make a database, and drop it at the end."""
    name = f"walsh_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    server = create_engine(SERVER, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        try:
            yield f"{SERVER.rpartition('/')[0]}/{name}", connection
        finally:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
