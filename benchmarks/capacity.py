"""The capacity of one process, and of two on one state: the figures behind docs/scale.md.

    python -m benchmarks.capacity [HOSTS]

Hosts with one feed of 20 entries each and nothing to wait for, crawled by one process and by two at
once, into SQLite and into the PostgreSQL of this machine; then all again, all 304. The
web shares the machine's CPUs with them.

Goals, of one process: 60 first visits per second into each database. PostgreSQL counts 4
transactions per first visit and 3 per revisit; the work once per run adds a few tenths. Four
workers that wait for 1,000 hosts on hold make at most 5 transactions per second, and no more of
them later.
"""

import resource
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Connection, text

from benchmarks.databases import new_database
from benchmarks.overhead import feed_of
from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.crawl import Crawl, find_project, start_crawl
from walsh_scrapy.testing.web import LoopbackWeb, Reply, Site

PROJECT = find_project(Path(__file__).parent)
#: Transactions per visit of the work once per run, with 500 hosts.
_ONCE = 0.3
_IDLE_WORKERS = 4
_IDLE_SECONDS = 20.0
_COMMITS = text("SELECT xact_commit FROM pg_stat_database WHERE datname = :name")
_SIZE = text("SELECT pg_database_size(:name)")


def main(report: Report, hosts: int) -> None:
    """Measure each state with one process and with two."""
    for processes in (1, 2):
        with tempfile.TemporaryDirectory() as name:
            file = Path(name, "state.sqlite3")
            subject = f"SQLite, processes: {processes}"
            _measure(report, hosts, processes, f"sqlite:///{file}", subject)
            size = Figure("state a target", file.stat().st_size / hosts / 1024, "KiB")
            report.add(subject, size)
    for processes in (1, 2):
        with new_database() as (url, connection):
            subject = f"PostgreSQL, processes: {processes}"
            _measure(report, hosts, processes, url, subject, connection)
            size = connection.execute(_SIZE, {"name": _name(url)}).scalar_one()
            report.add(subject, Figure("state a target", size / hosts / 1024, "KiB"))
    with new_database() as (url, connection):
        _wait_on_hold(report, hosts, url, connection)


def _wait_on_hold(report: Report, hosts: int, state: str, server: Connection) -> None:
    """Put all hosts on hold, and report the writes of workers that wait for them."""
    on_hold = Reply("", status=503, headers={"Retry-After": "250"})
    sites = [Site(f"h{number}.example", on_hold) for number in range(hosts)]
    with ExitStack() as stack:
        web = stack.enter_context(LoopbackWeb(*sites))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for number in range(_IDLE_WORKERS):
            stack.enter_context(_start(web, folder / str(number), state))
        web.wait_for(lambda log: len(log) >= hosts)
        for when in ("at first", "later"):
            time.sleep(_IDLE_SECONDS)
            before = _transactions(server, state)
            time.sleep(_IDLE_SECONDS)
            rate = (_transactions(server, state) - before) / _IDLE_SECONDS
            figure = Figure("transactions per second", rate, max_value=5)
            report.add(f"{_IDLE_WORKERS} workers, {hosts} hosts on hold, {when}", figure)


def _measure(
    report: Report,
    hosts: int,
    processes: int,
    state: str,
    subject: str,
    server: Connection | None = None,
) -> None:
    """Visit every host twice, and report rates, CPU and transactions of both visits."""
    feeds = [feed_of(number, full=True) for number in range(hosts)]
    pages = [Reply(feed, content_type="application/rss+xml", etag='"1"') for feed in feeds]
    sites = [
        Site(f"h{number}.example", "User-agent: *\n", {"/feed": page})
        for number, page in enumerate(pages)
    ]
    with LoopbackWeb(*sites) as web, tempfile.TemporaryDirectory() as name:
        for visit, goal in (("first visit", 4), ("again, 304", 3)):
            web.clear()
            before = _transactions(server, state)
            began = resource.getrusage(resource.RUSAGE_CHILDREN)
            running = [_start(web, Path(name, str(number)), state) for number in range(processes)]
            if any(crawl.wait(900).exit_code for crawl in running):
                raise SystemExit("a crawl failed")
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            log = web.log
            seconds = max(hit.ended for hit in log) - min(hit.started for hit in log)
            cpu = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
            is_checked = processes == 1 and visit == "first visit"
            report.add(
                f"{subject}, {visit}",
                Figure("targets per second", hosts / seconds, min_value=60 if is_checked else None),
                Figure("requests per target", len(log) / hosts),
                Figure("CPU per target", cpu / hosts * 1e3, "ms"),
            )
            if server is not None:
                transactions = (_transactions(server, state) - before) / hosts
                report.add(
                    f"{subject}, {visit}",
                    Figure("transactions", transactions, max_value=goal + _ONCE),
                )


def _transactions(server: Connection | None, state: str) -> int:
    """Return the number of transactions that a database has committed; 0 without a server."""
    if server is None:
        return 0
    return int(server.execute(_COMMITS, {"name": _name(state)}).scalar_one())


def _name(state: str) -> str:
    return state.rpartition("/")[2]


def _start(web: LoopbackWeb, folder: Path, state: str) -> Crawl:
    return start_crawl(
        web,
        folder=folder,
        project=PROJECT,
        sources=[f"http://{site.host}/feed" for site in web.sites],
        settings={"WALSH_STATE_URL": state, "LOG_LEVEL": "WARNING"},
        arguments={"force": "1"},
    )


if __name__ == "__main__":
    run(main, 1000)
