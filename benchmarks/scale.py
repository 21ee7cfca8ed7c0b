"""What 100,000 declared sources cost before the first of them is asked for, and in each turn.

    python -m benchmarks.scale [SOURCES]

The real `scrapy crawl`, in a process of its own, is watched until it has sent 4,000 requests.
Goals: at most 10 s from its start to the first of them, at most 300 MiB of memory at its peak.
Then the CPU of handing out one request, for a tenth of the sources and for all of them, in a
simulated crawl: it may grow as the logarithm does, and no faster. The time to the
first request includes what ordering the sources costs.
"""

import math
import resource
import tempfile
import time
from pathlib import Path

from benchmarks.report import Figure, Report, run
from walsh_scrapy.policy.frontier import Frontier, start_order
from walsh_scrapy.politeness.schedulerqueue import ENOUGH
from walsh_scrapy.testing.crawl import start_crawl
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.project import find_project
from walsh_scrapy.testing.web import LoopbackWeb, Reply, Site

WATCHED = 4000
#: One source in ten is on a platform with a hundred feeds, the others have a host each.
CROWD = 100


def main(report: Report, sources: int) -> None:
    """Report all three figures."""
    urls = _urls(sources)
    first, peak = _crawl(urls)
    report.add(
        f"{sources:,} sources",
        Figure("first request after", first, "s", most=10),
        Figure("peak memory", peak, "MiB", most=300),
    )
    few, many = (min(_hand_out(part) for _ in range(3)) for part in (urls[: sources // 10], urls))
    logarithm = math.log(sources) / math.log(sources // 10)
    fewer = f"one of {sources // 10:,}"
    cost = Figure("CPU", many * 1e6, "us", peer=fewer, peer_value=few * 1e6, most=logarithm)
    report.add("handing out one request", cost)


def _urls(sources: int) -> list[str]:
    """Return the sources, those of one platform spread over the whole list."""
    return [
        f"http://platform{n // 10 // CROWD}.example/{n}" if n % 10 == 0 else f"http://h{n}.example/"
        for n in range(sources)
    ]


def _crawl(urls: list[str]) -> tuple[float, float]:
    """Return the seconds to the first request, and the most memory in MiB while it was watched."""
    feed = Reply(rss("Blog", ["One", "Two"]), content_type="application/rss+xml")
    pages: dict[str, dict[str, Reply]] = {}
    for url in urls:
        host, _, path = url.removeprefix("http://").partition("/")
        pages.setdefault(host, {})[f"/{path}"] = feed
    sites = (Site(host, pages=paths) for host, paths in pages.items())
    with LoopbackWeb(*sites) as web, tempfile.TemporaryDirectory() as folder:
        project = find_project(Path(__file__).parent)
        began = time.monotonic()
        with start_crawl(web, folder=Path(folder), project=project, sources=urls) as crawl:
            web.wait_for(lambda log: len(log) >= WATCHED or not crawl.running, 600)
            running = crawl.running
        if not running:
            raise SystemExit("the crawl ended before its time")
        first = min(hit.started for hit in web.log) - began
    return first, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _hand_out(urls: list[str]) -> float:
    """Return the CPU seconds a request, fed as there is room, each host resting for a second."""
    frontier: Frontier[str] = Frontier()
    feed = iter(start_order(((url.split("/")[2], 0.0, url) for url in urls), {}))
    began = time.process_time()
    now, left = 0.0, len(urls)
    while left:
        while frontier.ready_hosts(now) < ENOUGH and (url := next(feed, None)):
            frontier.push(url.split("/")[2], url)
        if picked := frontier.pop(now):
            frontier.wait(picked[0], now + 1.0)
            frontier.free(picked[0])
            left -= 1
            now += 0.001
        else:
            now = frontier.next_at() or now
    return (time.process_time() - began) / len(urls)


if __name__ == "__main__":
    run(main, 100_000)
