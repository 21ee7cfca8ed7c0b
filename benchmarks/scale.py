"""The cost of many declared sources, of which one in 24 is due, on both databases.

    python -m benchmarks.scale [SOURCES] [DATABASE ...]

`walsh sources sync` reads the file into an empty state. Then all sources count as visited, one in
24 of them a day ago. The real `scrapy crawl` runs in a separate process until it has sent 2,000
requests: the time of the first one, and the most memory. Then nothing is due, and the same crawl
ends at once. CPU is that of our process, without the server's. Goals for 1,000,000
sources: 10 s, 300 MiB, 2 s; for 100,000: 3 s. DATABASE is SQLite or PostgreSQL; by default both are
measured.

At last the CPU of handing out one request, for 10,000 sources and for 100,000, in a simulated
crawl: it may grow as the logarithm does, and no faster.
"""

import math
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from benchmarks.databases import states
from benchmarks.report import Figure, Report, run
from walsh_scrapy.crawl.hosts.queue import MAX_READY_HOSTS
from walsh_scrapy.policy.frontier import Frontier
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.testing.crawl import environment_of, find_project, run_crawl, start_crawl
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.web import LoopbackWeb, Reply, Site

WATCHED = 2000
#: One source in this number is due.
DUE = 24
#: One source in ten is on a platform with a hundred feeds, each of the others has a host.
CROWD = 100
HANDED_OUT = 100_000
PROJECT = find_project(Path(__file__).parent)
VISITED = """
INSERT INTO sources (url, kind, url_key, visited_at, not_before, outcome)
SELECT url, kind, url_key, {at}, {at}, 'fetched' FROM declared WHERE true
ON CONFLICT (url_key) DO UPDATE
SET visited_at = excluded.visited_at, not_before = excluded.not_before
"""
FACTS = "UPDATE declared SET visited_at = {at}, not_before = {at}"
AT = "CASE WHEN url_key % {due} = 0 THEN {old} ELSE {new} END"


def main(report: Report, sources: int, *databases: str) -> None:
    """Report the figures of each database, then those of the frontier."""
    goals = {1_000_000: (10.0, 300.0, 2.0), 100_000: (3.0, 300.0, 2.0)}
    first, memory, nothing = goals.get(sources, (None, None, None))
    for name, url in states():
        if databases and name not in databases:
            continue
        with tempfile.TemporaryDirectory() as folder:
            measured = _measure(Path(folder), url, sources)
        report.add(
            f"{sources:,} sources, {name}",
            Figure("first sync", measured["sync"], "s"),
            Figure("its CPU", measured["sync CPU"], "s"),
            Figure("its memory", measured["sync memory"], "MiB"),
            Figure("first request after", measured["first"], "s", max_value=first),
            Figure("peak memory", measured["memory"], "MiB", max_value=memory),
            Figure("nothing due", measured["nothing"], "s", max_value=nothing),
            Figure("its CPU", measured["nothing CPU"], "s"),
        )
    few, many = (min(_hand_out(count) for _ in range(3)) for count in (10_000, HANDED_OUT))
    logarithm = math.log(HANDED_OUT) / math.log(10_000)
    cost = Figure("CPU", many * 1e6, "us", peer="10,000", peer_value=few * 1e6, max_value=logarithm)
    report.add("handing out one request of 100,000", cost)


def _url(number: int) -> str:
    """Return a source; those of one platform are spread over the whole list."""
    if number % 10 == 0:
        return f"http://platform{number // 10 // CROWD}.example/{number}"
    return f"http://h{number}.example/"


def _measure(folder: Path, url: str, sources: int) -> Mapping[str, float]:
    """Return seconds and MiB of the sync, of a run, and of a run without due sources."""
    file = folder / "sources.toml"
    with file.open("w") as written:
        written.writelines(f'[[source]]\nurl = "{_url(n)}"\n\n' for n in range(1, sources + 1))
    time.sleep(2.5)  # a younger file is read again by the next run
    settings = {"WALSH_STATE_URL": url}
    took: dict[str, float] = {}
    began, cpu = time.monotonic(), _children_cpu()
    took["sync memory"] = _sync(file, url)
    took["sync"], took["sync CPU"] = time.monotonic() - began, _children_cpu() - cpu
    _sync(file, url)
    _visit(url, old=time.time() - 86_500.0, new=time.time() - 3600.0)
    with LoopbackWeb(*_sites(sources)) as web:
        began = time.monotonic()
        options: dict[str, Any] = {
            "folder": folder,
            "project": PROJECT,
            "sources": file,
            "settings": settings,
        }
        with start_crawl(web, **options) as crawl:
            watched = min(WATCHED, sources // DUE // 2)
            web.wait_for(lambda log: len(log) >= watched or not crawl.running, 600)
            took["memory"] = _peak(crawl.pid)
        took["first"] = min(hit.started for hit in web.log) - began
        _visit(url, old=time.time(), new=time.time())
        web.clear()
        began, cpu = time.monotonic(), _children_cpu()
        run_crawl(web, **options)
        took["nothing"], took["nothing CPU"] = time.monotonic() - began, _children_cpu() - cpu
        if web.log:
            raise SystemExit("something was due")
    return took


def _sync(file: Path, url: str) -> float:
    """Run `walsh sources sync`, and return its peak memory in MiB."""
    command = [sys.executable, "-m", "walsh_scrapy", "sources", "sync", "--sources", str(file)]
    command += ["-s", f"WALSH_STATE_URL={url}"]
    with subprocess.Popen(command, env=environment_of(PROJECT), cwd=PROJECT) as process:
        peak = 0.0
        while process.poll() is None:
            peak = _peak(process.pid) or peak
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit("the sync failed")
    return peak


def _peak(process: int) -> float:
    """Return the peak memory of a process in MiB; 0 if it has ended."""
    peak = re.search(r"VmHWM:\s+([0-9]+)", Path(f"/proc/{process}/status").read_text())
    return int(peak[1]) / 1024 if peak else 0.0


def _children_cpu() -> float:
    """Return the CPU seconds of the processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _visit(url: str, old: float, new: float) -> None:
    """Let all sources be visited at ``new``, and those that are to be due at ``old``."""
    at = AT.format(due=DUE, old=old, new=new)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(VISITED.format(at=at)))
        connection.execute(text(FACTS.format(at=at)))
    if engine.dialect.name == "postgresql":  # as the server does by itself within a minute
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()


def _sites(sources: int) -> Iterator[Site]:
    """Yield the hosts of due sources."""
    feed = Reply(rss("Blog", ["One", "Two"]), content_type="application/rss+xml")
    pages: dict[str, dict[str, Reply]] = {}
    for url in map(_url, range(1, sources + 1)):
        if url_key(url) % DUE == 0:
            host, _, path = url.removeprefix("http://").partition("/")
            pages.setdefault(host, {})[f"/{path}"] = feed
    return (Site(host, pages=paths) for host, paths in pages.items())


def _hand_out(sources: int) -> float:
    """Return the CPU seconds per request, with a delay of one second for each host."""
    frontier: Frontier[str] = Frontier()
    urls = map(_url, range(sources))
    feed = iter(sorted(urls, key=lambda url: url.split("/")[2]))
    began = time.process_time()
    now, remaining = 0.0, sources
    while remaining:
        while frontier.ready_hosts(now) < MAX_READY_HOSTS and (url := next(feed, None)):
            frontier.push(url.split("/")[2], url)
        if picked := frontier.pop(now):
            frontier.wait(picked[0], now + 1.0)
            frontier.free(picked[0])
            remaining -= 1
            now += 0.001
        else:
            now = frontier.next_at() or now
    return (time.process_time() - began) / sources


if __name__ == "__main__":
    run(main, 1_000_000, names=("SQLite", "PostgreSQL"))
