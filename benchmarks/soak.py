"""What a crawl does among thousands of hosts that misbehave at random, twice.

    python -m benchmarks.soak [SOURCES] [HOSTS] [SEED]

Without arguments 5,000 sources on 2,000 hosts. Each host is at an address of its own, and each of
its pages, its robots.txt, its name and its address may misbehave in a way that is drawn from the
seed. The second run is forced: it asks again for every source that no host keeps back.

A line a minute has the memory and the descriptors of the crawl, and how far it is. After each run
come the outcomes of the sources, each rule that was broken by the log of the servers, and the time
against what the hosts took, with 10 s for each host that cannot be reached, and 90 s for each that
accepts connections and never answers. Goals: both runs end with 0, memory and descriptors stay
flat, no rule is broken, at most 1.5 times that time.
"""

import gzip
import math
import re
import resource
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import TypeVar

from benchmarks.overhead import feed_of
from benchmarks.report import Figure, Report, run
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.testing.crawl import Crawl, CrawlResult, start_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.names import RIGHT, silent
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.project import find_project
from walsh_scrapy.testing.reply import Fault, Page, Reply, redirect
from walsh_scrapy.testing.site import Down, Site

MINUTE = 60.0
MIB = 1024 * 1024
#: Seconds that a host without an answer may cost a run (decision 28): its connection, or, if it
#: accepts that, two requests for robots.txt and one for a feed.
SILENCE, MUTENESS = 10.0, 90.0
#: The longest that a run may take, in seconds, whatever it waits for.
LONGEST = 12 * 3600.0
BOMB = gzip.compress(bytes(64 * MIB))
RSS = "application/rss+xml"
_PUT_OFF = re.compile(r"INFO:? (\S+) is deferred to a later run: ")


def _page(number: int) -> Reply:
    return Reply(feed_of(number, full=False), content_type=RSS, etag=f'"{number}"')


def _cut(number: int) -> Reply:
    return Reply(feed_of(number, full=False), content_type=RSS, fault=Fault.TRUNCATE)


def _many_entries(_: int) -> Reply:
    items = "".join(f"<item><guid>{n}</guid><title>t</title></item>" for n in range(20_000))
    return Reply(
        f"<rss version='2.0'><channel>{items}</channel></rss>", content_type=RSS, gzip=True
    )


def _many_attributes(_: int) -> Reply:
    attributes = " ".join(f"a{n}='1'" for n in range(5000))
    return Reply(f"<rss><channel><item {attributes}/></channel></rss>", content_type=RSS)


#: What a page may be, with how often; by number of its source.
PAGES: tuple[tuple[int, Callable[[int], Page]], ...] = (
    (60, _page),
    (4, lambda _: Reply("<rss><channel><item>", content_type=RSS)),
    (4, lambda _: Reply("no feed at all", content_type="text/html")),
    (4, lambda _: Reply(status=404)),
    (3, lambda _: Reply(status=410)),
    (3, lambda _: Reply(status=500)),
    (4, lambda number: [Reply(status=429, headers={"Retry-After": "2"}), _page(number)]),
    (2, lambda _: Reply(status=503, headers={"Retry-After": "86400"})),
    (3, _cut),
    (3, lambda _: Reply(fault=Fault.RESET)),
    (2, lambda _: Reply(fault=Fault.CLOSE)),
    (2, lambda _: redirect("/loop")),
    (2, lambda _: redirect("http://127.0.0.1/private", 302)),
    (1, lambda number: Reply(feed_of(number, full=False), content_type=RSS, drip=5.0)),
    (1, lambda _: Reply(BOMB, content_type=RSS, headers={"Content-Encoding": "gzip"})),
    (1, _many_entries),
    (1, _many_attributes),
)
DENIED = "User-agent: *\nDisallow: /\n"
ROBOTS: tuple[tuple[int, "Page | None"], ...] = (
    (70, "User-agent: *\n"),
    (10, None),
    (5, DENIED),
    (5, "User-agent: *\nCrawl-delay: 2\n"),
    (4, Reply(status=503)),
    (2, Reply(fault=Fault.RESET)),
    (2, Reply("Comment: x\n" * 50_000)),
    (2, redirect("/robots.txt")),
)
#: How a host fails as a whole; most do not.
DOWN: tuple[tuple[int, Down | str | None], ...] = (
    (97, None),
    (1, Down.DEAD),
    (1, Down.MUTE),
    (1, "nameless"),
)


_Value = TypeVar("_Value")


def main(report: Report, sources: int, hosts: int, seed: int) -> None:
    """Crawl twice over one state."""
    sites, urls = _web(sources, hosts, Random(seed))
    report.say(f"{sources} sources on {hosts} hosts, seed {seed}")
    with DirectWeb(*sites) as web, tempfile.TemporaryDirectory() as name:
        for number in (1, 2):
            _run(report, web, Path(name), urls, number)
            web.clear()


def _web(sources: int, hosts: int, random: Random) -> tuple[list[Site], list[str]]:
    """Return the sites and the declared URLs."""
    pages: list[dict[str, Page]] = [{"/loop": redirect("/loop")} for _ in range(hosts)]
    urls = []
    for number in range(sources):
        host = random.randrange(hosts)
        pages[host][f"/{number}"] = _drawn(random, PAGES)(number)
        urls.append(f"http://h{host}.example/{number}")
    return [_site(f"h{host}.example", own, random) for host, own in enumerate(pages)], urls


def _site(name: str, pages: Mapping[str, Page], random: Random) -> Site:
    robots, down = _drawn(random, ROBOTS), _drawn(random, DOWN)
    dns = silent(MINUTE) if down == "nameless" else RIGHT
    return Site(name, robots, pages, down=down if isinstance(down, Down) else None, dns=dns)


def _drawn(random: Random, weighed: Sequence[tuple[int, _Value]]) -> _Value:
    weights, values = zip(*weighed, strict=True)
    drawn: _Value = random.choices(values, weights)[0]
    return drawn


def _run(report: Report, web: DirectWeb, folder: Path, urls: Sequence[str], number: int) -> None:
    project, arguments = find_project(Path(__file__).parent), {"force": 1} if number == 2 else {}
    with (
        start_crawl(
            web, folder=folder, project=project, sources=urls, arguments=arguments
        ) as crawl,
        closing(_Minutes(report, web, crawl, folder)),
    ):
        result = crawl.wait(LONGEST)
    outcomes = _outcomes(folder)
    put_off = _put_off(result, folder, urls)
    lost = len(urls) - sum(outcomes.values()) - put_off
    broken = violations(
        result.log,
        connections=result.connections,
        crawl_delays=web.crawl_delays,
        declared=urls,
        denied=[f"http://{site.host}/" for site in web.sites if site.robots == DENIED],
        robots_first=number == 1,
        backoff=2.0,
    )
    bound = _bound(web, urls, result.log)
    report.add(
        f"run {number}",
        Figure("exit status", result.exit_code, least=0, most=0),
        Figure("items", len(result.items)),
        Figure("put off, so still due", put_off),
        Figure("without an outcome", lost, most=0),
        Figure("rules broken", len(broken), most=0),
        Figure("time", result.seconds, "s", peer="budgets", peer_value=bound, most=1.5),
        note=" | ".join(broken[:20]),
    )
    counts = (Figure(what, count) for what, count in outcomes.most_common())
    report.add(f"run {number}, sources by outcome", *counts)


class _Minutes:
    """Reports a line each minute, in a thread of its own, until it is closed."""

    def __init__(self, report: Report, web: DirectWeb, crawl: Crawl, folder: Path) -> None:
        self._report, self._web, self._crawl, self._folder = report, web, crawl, folder
        self._began, self._over = time.monotonic(), Event()
        self._thread = Thread(target=self._watch)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(MINUTE):
            minutes = (time.monotonic() - self._began) / MINUTE
            asked = len({hit.host for hit in self._web.log})
            self._report.add(
                f"after {minutes:.0f} min",
                Figure("memory", _memory(self._crawl.pid), "MiB"),
                Figure("descriptors", _descriptors(self._crawl.pid)),
                Figure("hosts asked", asked),
                Figure("sources with an outcome", sum(_outcomes(self._folder).values())),
            )


def _bound(web: DirectWeb, urls: Sequence[str], log: Sequence[Hit]) -> float:
    """Return the seconds of all exchanges and silences, or of the slowest host if that is longer.

    The slowest host is the one with the longest time from its first request to the last answer.
    """
    declared = {host_of(url) for url in urls}
    down = sum(_silence(site) for site in web.sites if site.host in declared)
    ended = [hit for hit in log if math.isfinite(hit.ended)]
    starts: dict[str, float] = {}
    for hit in ended:
        starts.setdefault(hit.host, hit.started)
    slowest = max((hit.ended - starts[hit.host] for hit in ended), default=0.0)
    return max(sum(hit.ended - hit.started for hit in ended) + down, slowest, 1.0)


def _silence(site: Site) -> float:
    """Return the seconds that a run may wait for a host that does not answer."""
    if site.down is Down.MUTE:
        return MUTENESS
    return SILENCE if site.down or site.dns is not RIGHT else 0.0


def _outcomes(folder: Path) -> Counter[str]:
    """Return how many sources have each outcome in the state."""
    state = f"file:{folder / 'walsh.sqlite3'}?mode=ro"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(state, uri=True)) as db:
        return Counter(dict(db.execute("SELECT outcome, count(*) FROM sources GROUP BY outcome")))
    return Counter()  # the crawl has not made it yet


def _put_off(result: CrawlResult, folder: Path, urls: Sequence[str]) -> int:
    """Return how many sources have no outcome, and the log says that they were put off."""
    with closing(sqlite3.connect(f"file:{folder / 'walsh.sqlite3'}?mode=ro", uri=True)) as db:
        known = {url for (url,) in db.execute("SELECT url FROM sources WHERE outcome <> ''")}
    return len(set(_PUT_OFF.findall(result.stderr)).intersection(urls) - known)


def _memory(pid: int) -> int:
    """Return the resident memory of a process in MiB; 0 if it has ended."""
    with suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        return pages * resource.getpagesize() // MIB
    return 0


def _descriptors(pid: int) -> int:
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return 0


if __name__ == "__main__":
    run(main, 5000, 2000, 0)
