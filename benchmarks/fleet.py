"""Workers that share a state, against the bound.

    python -m benchmarks.fleet [REQUESTS] [HOSTS]

First a thousand workers in simulated time, with the policy code of a crawl, and about so many
requests. Then real processes on the loopback web: 1, 2, 4 and 8 of them, on both databases, and one
of four killed half-way. The web takes 0.3 s for each answer, so the workers wait for it and not for
the CPU. The bound is the larger of two: all exchanges, one after the other in each worker, and the
longest chain of a host. Goals: at most 1.1 of the bound; nothing too soon, lost, or requested
again, by the log of the web.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.databases import states
from benchmarks.report import Figure, Report, run
from benchmarks.simulatedfleet import Fleet, Simulation, hosts_of
from walsh_scrapy.testing.crawl import find_project, start_crawl
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.web import LoopbackWeb, Reply, Site

WORKERS = 1000
#: Sources of the largest host: its chain is shorter than the time of the fleet.
LARGEST = 100
#: Seconds that the web takes for each answer.
DELAY = 0.3
#: The minimum between two exchanges with a host, minus the difference of two clocks.
MIN_GAP_SECONDS = 1.0 - 0.01
PROJECT = find_project(Path(__file__).parent)


def main(report: Report, requests: int, hosts: int) -> None:
    """Report the simulated fleets, then the real ones."""
    _simulate(report, requests)
    for workers, kill in (*((number, False) for number in (1, 2, 4, 8)), (4, True)):
        for name, state in states():
            subject = f"{name}, {workers} processes" + (", one killed half-way" if kill else "")
            log, expected = _crawl(state, hosts, workers, kill=kill)
            _report(report, subject, log, expected, workers, goal=not kill)


def _simulate(report: Report, requests: int) -> None:
    hosts = hosts_of(requests, LARGEST)
    for difference, fleet, max_value in (
        ("", Fleet(WORKERS), 1.1),
        (", a fifth three times slower", Fleet(WORKERS, slow=0.2), None),
        (", a tenth dies", Fleet(WORKERS, dying=0.1), 1.1),
    ):
        outcome = Simulation(hosts, fleet).run()
        report.add(
            f"{WORKERS} simulated workers, {outcome.requests:,} requests{difference}",
            Figure(
                "time",
                outcome.seconds,
                "s",
                peer="bound",
                peer_value=outcome.bound,
                max_value=max_value,
            ),
            Figure("hosts taken", outcome.taken),
            Figure("too soon", outcome.too_soon, max_value=0),
            Figure("requested again", outcome.again, max_value=0),
            Figure("missing", outcome.missing, max_value=0),
        )


def _crawl(state: str, hosts: int, workers: int, *, kill: bool) -> tuple[Sequence[Hit], set[str]]:
    """Crawl hosts with 1 to 8 feeds each; return the log of the web, and the expected URLs."""
    feed = Reply(rss("Blog", ["One"]), content_type="application/rss+xml", delay=DELAY)
    robots = Reply("User-agent: *\n", delay=DELAY)
    sites = [
        Site(
            f"h{number}.example",
            pages={f"/{page}": feed for page in range(1 + number * 7 % 8)}
            | {"/robots.txt": robots},
        )
        for number in range(hosts)
    ]
    expected = {f"http://{site.host}{path}" for site in sites for path in site.pages}
    sources = sorted(url for url in expected if not url.endswith("/robots.txt"))
    with LoopbackWeb(*sites) as web, tempfile.TemporaryDirectory() as folder:
        running = [
            start_crawl(
                web,
                folder=Path(folder, str(number)),
                project=PROJECT,
                sources=sources,
                settings={"WALSH_STATE_URL": state, "LOG_LEVEL": "WARNING"},
            )
            for number in range(1, workers + 1)
        ]
        if kill:
            running.pop().kill_when(lambda log: len(log) >= len(expected) / 2)
        if any(crawl.wait(900).exit_code for crawl in running):
            raise SystemExit("a crawl failed")
        return sorted(web.log, key=lambda hit: hit.started), expected


def _report(
    report: Report,
    subject: str,
    log: Sequence[Hit],
    expected: set[str],
    workers: int,
    *,
    goal: bool,
) -> None:
    by_host = defaultdict[str, list[Hit]](list)
    for hit in log:
        by_host[hit.host].append(hit)
    chains = [
        sum(hit.ended - hit.started for hit in hits) + len(hits) - 1 for hits in by_host.values()
    ]
    service = sum(hit.ended - hit.started for hit in log) / workers
    took = max(hit.ended for hit in log) - log[0].started
    soon = [
        later
        for hits in by_host.values()
        for hit, later in pairwise(hits)
        if later.started - hit.ended < MIN_GAP_SECONDS
    ]
    requested = Counter(hit.url for hit in log)
    bound = max(service, *chains)
    report.add(
        subject,
        Figure("time", took, "s", peer="bound", peer_value=bound, max_value=1.1 if goal else None),
        Figure("too soon", len(soon), max_value=0),
        Figure("requested again", len(log) - len(requested), max_value=0 if goal else 1),
        Figure("missing", len(expected - requested.keys()), max_value=0),
    )


if __name__ == "__main__":
    run(main, 622_000, 40)
