"""The time of a crawl against the cost of politeness itself.

    python -m benchmarks.makespan [WORKLOAD ...]

The bound is the larger of two: all service times one after the other, since the crawl is serial,
and the slowest host's chain of requests and delays. Goal: at most 1.05 of it. The peer is Scrapy
set to the same politeness: a download slot for each host with its delay, serial. It also prints
when the first feed was read, and after which part of the requests half of the feeds were.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.crawl import find_project, run_crawl
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.web import LoopbackWeb, Page, Reply, Site

PEER = """
import json
from pathlib import Path

import scrapy

PLAN = json.loads(Path("plan.json").read_text())


class FeedsSpider(scrapy.Spider):
    name = "feeds"
    custom_settings = {
        "ROBOTSTXT_OBEY": True,
        "CONCURRENT_REQUESTS": 1,
        "DOWNLOAD_DELAY_JITTER": 0,
        "DOWNLOAD_SLOTS": {
            host: {"concurrency": 1, "delay": delay} for host, delay in PLAN["delays"].items()
        },
        "LOG_LEVEL": "INFO",
    }

    async def start(self):
        for url in PLAN["urls"]:
            yield scrapy.Request(url)

    def parse(self, response):
        yield {"url": response.url}
"""


class Workload:
    """Hosts with their delays (seconds), each with a number of feeds."""

    def __init__(
        self, name: str, plan: Mapping[str, tuple[float, int]], *, busy: bool = False
    ) -> None:
        self.name = name
        self.delays = {host: delay for host, (delay, _) in plan.items()}
        self.urls = [
            f"http://{host}/{n}" for host, (_, feeds) in plan.items() for n in range(feeds)
        ]
        self.sites = [_site(host, delay, feeds, busy=busy) for host, (delay, feeds) in plan.items()]

    def bound(self, log: Sequence[Hit]) -> float:
        """Return the seconds that no crawl as polite as this one can undercut."""
        service = sum(hit.ended - hit.started for hit in log)
        return max(
            service, *(self._chain([h for h in log if h.host == host]) for host in self.delays)
        )

    def _chain(self, hits: Sequence[Hit]) -> float:
        """Return the seconds of one host's exchanges and of the delays between them."""
        seconds = sum(hit.ended - hit.started for hit in hits)
        for hit in hits[:-1]:
            retry_after = hit.answered("Retry-After") if hit.status == 429 else None
            seconds += max(1.0, self.delays[hit.host], float(retry_after or 0))
        return seconds


def workloads() -> tuple[Workload, ...]:
    """Return the three workloads."""
    return (
        Workload(
            "60 hosts, 1 to 8 feeds, Crawl-delay 1 to 5 s",
            {f"h{n}.example": (1.0 + n % 5, 1 + n * 7 % 8) for n in range(60)},
        ),
        Workload(
            "one host of 20 feeds among 100 of one",
            {"large.example": (1.0, 20)} | {f"h{n}.example": (1.0, 1) for n in range(100)},
        ),
        Workload(
            "30 hosts with a 429 each",
            {f"h{n}.example": (1.0, 1 + n % 4) for n in range(30)},
            busy=True,
        ),
    )


def main(report: Report, *chosen: str) -> None:
    """Run each workload with this project and with the peer."""
    for number, workload in enumerate(workloads(), 1):
        if chosen and str(number) not in chosen:
            continue
        title = f"{number}. {workload.name}"
        report.add(f"{title}, walsh-scrapy", *_measure(workload, _run_ours))
        if number < 3:  # the peer has no Retry-After
            report.add_peer(f"{title}, plain Scrapy", *_measure(workload, _run_peer))


def _measure(
    workload: Workload, crawl: Callable[[LoopbackWeb, Path, Workload], None]
) -> tuple[Figure, ...]:
    with LoopbackWeb(*workload.sites) as web, tempfile.TemporaryDirectory() as folder:
        crawl(web, Path(folder), workload)
        log = web.log
    took = max(hit.ended for hit in log) - min(hit.started for hit in log)
    time = Figure("time", took, "s", peer="bound", peer_value=workload.bound(log), max_value=1.05)
    return time, *reading_of(log)


def reading_of(
    log: Sequence[Hit], max_values: tuple[float, float] | tuple[None, None] = (None, None)
) -> tuple[Figure, Figure]:
    """Return when the first feed and half of the feeds were read; ``max_values`` are the goals."""
    is_read = [hit.path != "/robots.txt" and hit.status == 200 for hit in log]
    read = [number for number, is_feed in enumerate(is_read, 1) if is_feed]
    first, half = log[read[0] - 1].ended - log[0].started, read[(len(read) - 1) // 2]
    return (
        Figure("first feed after", first, "s", max_value=max_values[0]),
        Figure(
            "half of the feeds after",
            half / len(log) * 100,
            "% of the requests",
            max_value=max_values[1],
        ),
    )


def _run_ours(web: LoopbackWeb, folder: Path, workload: Workload) -> None:
    project = find_project(Path(__file__).parent)
    result = run_crawl(
        web, folder=folder / "c", project=project, sources=workload.urls, timeout=900
    )
    fetched = result.stats.get("walsh/sources/fetched")
    if (result.exit_code, fetched) != (0, len(workload.urls)):
        raise SystemExit(
            f"the crawl ended with {result.exit_code}, {fetched} of {len(workload.urls)}"
        )


def _run_peer(web: LoopbackWeb, folder: Path, workload: Workload) -> None:
    (folder / "peer.py").write_text(PEER)
    plan = {"delays": workload.delays, "urls": workload.urls}
    (folder / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, "-m", "scrapy", "runspider", "peer.py"]
    subprocess.run(
        command, cwd=folder, env=os.environ | web.environment, capture_output=True, check=True
    )


def _site(host: str, delay: float, feeds: int, *, busy: bool) -> Site:
    robots = f"User-agent: *\nCrawl-delay: {delay}\n"
    pages: dict[str, Page] = {}
    for number in range(feeds):
        document = rss(f"{host} {number}", ["One"], f"http://{host}/{number}")
        pages[f"/{number}"] = Reply(document, content_type="application/rss+xml", delay=0.02)
    if busy:
        refused = Reply("later", 429, headers={"Retry-After": "3"})
        pages["/0"] = [refused, pages["/0"]]
    return Site(host, robots, pages)


if __name__ == "__main__":
    run(main, names=("1", "2", "3"))
