"""The cost of hosts that do not answer, and the time until the others are served.

    python -m benchmarks.dead

Of 40 hosts, 8 answer no SYN and the names of 4 get no answer. They are spread over the sources. The
crawl is compared with one of the other 28 hosts alone. Goal: a dead host costs at most 10 s, which
is the longest time to connect. The same crawl is then run again, and its memory of the dead hosts
makes them come last. The peer is plain Scrapy, which is killed after four minutes.
"""

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.overhead import feed_of
from benchmarks.peer import POLITE, run_peer
from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.crawl import CrawlResult, find_project, run_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.site import Answer, Down, Site, silent
from walsh_scrapy.testing.web import Reply

HOSTS = range(40)
#: Every third host but the last; every third of these by its name.
DEAD = HOSTS[1:36:3]
NAMELESS = DEAD[::3]
LATENCY = 0.03
LOOKUP = Answer(delay=0.1)
SILENCE = silent(60.0)
PEER_SECONDS = 240.0


def main(report: Report) -> None:
    """Crawl without the dead hosts, with them, and with them again; then with the peer."""
    sites = [_site(number) for number in HOSTS]
    urls = [f"http://{site.host}/feed" for site in sites]
    living = [url for number, url in enumerate(urls) if number not in DEAD]
    with DirectWeb(*sites, latency=LATENCY) as web, tempfile.TemporaryDirectory() as name:
        alone = _crawl(web, Path(name, "alone"), living)
        first = _crawl(web, Path(name, "all"), urls)
        again = _crawl(web, Path(name, "all"), urls)
        report.add(f"{len(living)} hosts that answer", _time(alone), *_served(alone.log))
        for title, result in (("first run", first), ("second run", again)):
            cost = (_seconds(result) - _seconds(alone)) / len(DEAD)
            report.add(
                f"{len(HOSTS)} hosts, {len(DEAD)} of them dead, {title}",
                _time(result),
                *_served(result.log),
                Figure("a dead host", cost, "s", max_value=10),
            )
        web.clear()
        code, _ = run_peer(web, Path(name, "peer"), urls, POLITE, PEER_SECONDS)
        end = f"killed after {PEER_SECONDS:.0f} s" if code is None else f"ended with {code}"
        report.add_peer("plain Scrapy, all hosts", *_served(web.log), note=end)


def _crawl(web: DirectWeb, folder: Path, urls: Sequence[str]) -> CrawlResult:
    project = find_project(Path(__file__).parent)
    arguments = {"force": "1"}
    result = run_crawl(web, folder=folder, project=project, sources=urls, arguments=arguments)
    read, living = _read(result.log), len(HOSTS) - len(DEAD)
    if (result.exit_code, read) != (0, living):
        raise SystemExit(f"a crawl ended with {result.exit_code}, {read} of {living} feeds")
    return result


def _seconds(result: CrawlResult) -> float:
    """Return the seconds of a crawl, without the start of its process."""
    seconds: float = result.stats["elapsed_time_seconds"]
    return seconds


def _time(result: CrawlResult) -> Figure:
    return Figure("time", _seconds(result), "s")


def _read(log: Sequence[Hit]) -> int:
    return sum(hit.path == "/feed" and hit.complete for hit in log)


def _served(log: Sequence[Hit]) -> tuple[Figure, ...]:
    """Return the number of feeds that were read, their time, and the longest gap."""
    pause = max(later.started - earlier.ended for earlier, later in pairwise(log))
    took = max(hit.ended for hit in log) - log[0].started
    return (
        Figure("feeds read", _read(log)),
        Figure("within", took, "s"),
        Figure("longest time without any", pause, "s"),
    )


def _site(number: int) -> Site:
    page = Reply(feed_of(number, full=True), content_type="application/rss+xml")
    return Site(
        f"h{number}.example",
        "User-agent: *\n",
        {"/feed": page},
        dns=SILENCE if number in NAMELESS else LOOKUP,
        down=Down.DEAD if number in DEAD and number not in NAMELESS else None,
    )


if __name__ == "__main__":
    run(main)
