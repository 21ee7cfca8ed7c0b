"""Two workers on one PostgreSQL, whose processes stand still or go away at the worst moments.

    python -m benchmarks.faults [NAME ...]

Each fault has a run of its own: a PostgreSQL server, a web, and two crawls of the same sources. The
web is the trigger: a worker is stopped (SIGSTOP) when its request has arrived. When both crawls
have ended, a third one does what they left. Goals, by the log of the web: no gap is too short, no
host is asked twice at once, no hold is broken, no source is fetched twice. A worker that stood
still for longer than it owned its hosts may lose one visit, which is then made again. Goals, by the
state: nobody is blamed, so no source has failed, and no host is on hold or gets a longer delay.
Nothing is left over, and each crawl exits with 0. If a goal is missed, the exit status is 1.

The database is stopped at random moments, the same in each run. `none` is a run without a fault.
"""

import asyncio
import math
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from benchmarks.postgresql import Server
from benchmarks.report import Figure, Report, run
from walsh_scrapy.testing.connections import FAILED, CountedSocket
from walsh_scrapy.testing.crawl import Crawl, start_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.project import find_project
from walsh_scrapy.testing.reply import Page, Reply, redirect
from walsh_scrapy.testing.site import Certificate, Site

PROJECT = find_project(Path(__file__).parent)
SIDE_BY_SIDE = 4
DAY = 86_400.0
#: Seconds of one exchange at most. The longer stop of the database outlasts it.
TIMEOUT = 8
ANSWER = 0.3  #: seconds that most answers take
SLOW = 2.0  #: the same at `slow.example`
HANDSHAKE = 1.5  #: seconds until the web goes on with a TLS handshake
CRAWL_DELAY = 3  #: seconds, of the hosts with many sources
#: Seconds by which a busy machine may lengthen a delay that follows the latency.
SLACK = 1.5
ROBOTS = Reply("User-agent: *\n", delay=ANSWER)
PATIENT = f"User-agent: *\nCrawl-delay: {CRAWL_DELAY}\n"
CHAINS = ("chain1.example", "chain2.example", "chain3.example")
SECURE, MOVED, BUSY = "secure.example", "moved.example", "busy.example"


class SlowWeb(DirectWeb):
    """A web in which each TLS handshake takes `HANDSHAKE` seconds."""

    async def _serve(self, accepted: CountedSocket, scheme: str) -> None:
        if scheme == "https":
            await asyncio.sleep(HANDSHAKE)
        await super()._serve(accepted, scheme)


@dataclass(frozen=True)
class Scene:
    """What a fault is planted in."""

    web: SlowWeb
    server: Server
    workers: list[Crawl]
    chance: random.Random

    def request(self, *hosts: str) -> Hit:
        """Wait for the next request that is in flight: for a page of these hosts, or any."""
        since, found = time.monotonic(), list[Hit]()

        def arrived(log: Any) -> bool:  # noqa: ANN401
            found[:] = [
                hit
                for hit in log
                if hit.started > since
                and math.isinf(hit.ended)
                and (not hosts or (hit.host in hosts and hit.path != "/robots.txt"))
            ]
            return bool(found)

        if not self.web.wait_for(arrived, 120.0):
            raise SystemExit("the moment for the fault did not come")
        return found[0]

    def worker_of(self, client: int) -> Crawl | None:
        """Return the worker that has the socket of this port."""
        return next((each for each in self.workers if client in ports_of(each.pid)), None)

    def is_idle(self, worker: Crawl) -> bool:
        """Return whether no request of a worker is in flight, and none is about to be sent."""
        log = self.web.log
        in_flight = {hit.client for hit in log if math.isinf(hit.ended)}
        opened = {each.client for each in self.web.connections if math.isinf(each.closed)}
        without_request = opened - {hit.client for hit in log}
        return not ports_of(worker.pid) & (in_flight | without_request)


def ports_of(pid: int) -> set[int]:
    """Return the local ports of the connections that a process has."""
    names = set[str]()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            names.add(os.readlink(each))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in names}


@contextmanager
def stopped(*workers: Crawl) -> Iterator[None]:
    """Let workers stand still meanwhile."""
    for each in workers:
        os.kill(each.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in workers:
            os.kill(each.pid, signal.SIGCONT)


def nothing(_: Scene) -> None:
    """Plant no fault."""


def stop_database(scene: Scene, seconds: float) -> None:
    """Stop the database within a second after a request has arrived."""
    scene.request()
    time.sleep(scene.chance.random())
    with scene.server.stopped():
        time.sleep(seconds)


def restart_database(scene: Scene, how: signal.Signals) -> None:
    """Restart the database at such a moment, as `pg_ctl restart` does."""
    scene.request()
    time.sleep(scene.chance.random())
    scene.server.end(how)
    scene.server.start()


def cut_connections(scene: Scene) -> None:
    """Let the server end all its connections at such a moment."""
    scene.request()
    time.sleep(scene.chance.random())
    scene.server.cut()


def stop_in_flight(scene: Scene, seconds: float) -> None:
    """Stop a worker whose request is in flight."""
    while (worker := scene.worker_of(scene.request(*CHAINS).client)) is None:
        pass
    with stopped(worker):
        time.sleep(seconds)


def stop_between(scene: Scene, seconds: float) -> None:
    """Stop a worker that has just asked a host with more sources, and has no request in flight."""
    while True:
        worker = scene.worker_of(scene.request(*CHAINS).client)
        time.sleep(ANSWER + scene.chance.random())
        if worker is not None:
            with stopped(worker):
                if scene.is_idle(worker):
                    time.sleep(seconds)
                    return


def stop_in_handshake(scene: Scene, seconds: float) -> None:
    """Stop a worker while it waits for the answer to its ClientHello."""
    scene.request(SECURE)  # the robots.txt and one page were read
    since, worker = time.monotonic(), None
    while worker is None:

        def opened(log: Any) -> bool:  # noqa: ANN401
            clients[:] = [
                each.client
                for each in log
                if each.opened > since and each.handshake == FAILED and math.isinf(each.closed)
            ]
            return bool(clients)

        clients = list[int]()
        if not scene.web.wait_for_connections(opened, 120.0):
            raise SystemExit("the moment for the fault did not come")
        worker = scene.worker_of(clients[0])
    with stopped(worker):
        time.sleep(seconds)


def lose_database_in_redirect(scene: Scene, seconds: float) -> None:
    """Take the database away when a redirect is about to be answered, and bring it back later."""
    scene.request(MOVED)
    scene.server.end(signal.SIGINT)
    time.sleep(seconds)
    scene.server.start()


def fall_asleep(scene: Scene, seconds: float) -> None:
    """Stop workers and database together, while a request is in flight."""
    scene.request(*CHAINS)
    with stopped(*scene.workers), scene.server.stopped():
        time.sleep(seconds)


@dataclass(frozen=True)
class Fault:
    """A fault, how often a run has it, and what follows from it."""

    plant: Callable[[Scene], None]
    times: int = 1
    sources: int = 8  #: of each host with many: their chains outlast the fault
    again: int = 0  #: visits that may be made again, because a worker stood still for too long


def _stops(plant: Callable[..., None], again: int) -> Iterator[Fault]:
    for seconds in (30, 60):
        yield Fault(partial(plant, seconds=seconds), sources=seconds // CRAWL_DELAY, again=again)


FAULTS = {
    "none": Fault(nothing),
    "database-3s": Fault(partial(stop_database, seconds=3), times=4),
    "database-10s": Fault(partial(stop_database, seconds=10), times=3, sources=12),
    "restart-fast": Fault(partial(restart_database, how=signal.SIGINT), times=4),
    "restart-immediate": Fault(partial(restart_database, how=signal.SIGQUIT), times=4),
    "cut": Fault(cut_connections, times=8),
    **dict(zip(("flight-30s", "flight-60s"), _stops(stop_in_flight, 1), strict=True)),
    **dict(zip(("between-30s", "between-60s"), _stops(stop_between, 1), strict=True)),
    **dict(zip(("handshake-30s", "handshake-60s"), _stops(stop_in_handshake, 0), strict=True)),
    "redirect-4s": Fault(partial(lose_database_in_redirect, seconds=4), times=3),
    "redirect-25s": Fault(partial(lose_database_in_redirect, seconds=25), sources=12),
    "asleep": Fault(partial(fall_asleep, seconds=30), sources=12, again=2),
}


def main(report: Report, *names: str) -> None:
    """Plant the faults of these names, or all, several at a time."""
    total = Counter[str]()
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        runs = pool.map(_run, names or FAULTS)
        for name, (found, words) in zip(names or FAULTS, runs, strict=True):
            _report(report, name, found)
            for each in words:
                report.say(f"    {each}")
            total.update(found)
    _report(report, "all", total)


def _report(report: Report, name: str, found: Counter[str]) -> None:
    kinds = (Figure(kind, number) for kind, number in found.items() if number)
    report.add(name, Figure("found", found.total(), most=0), *kinds)


def _run(name: str) -> tuple[Counter[str], list[str]]:
    """Plant a fault in a run; return what was found, as numbers and as sentences."""
    fault, sites = FAULTS[name], _sites(FAULTS[name].sources)
    sources = sorted(
        f"{'https' if site.tls else 'http'}://{site.host}{path}"
        for site in sites
        for path in site.pages
        if path.startswith("/feed")
    )
    with ExitStack() as stack:
        server = stack.enter_context(Server())
        web = stack.enter_context(SlowWeb(*sites))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        given: dict[str, Any] = {
            "project": PROJECT,
            "sources": sources,
            "settings": {"WALSH_STATE_URL": server.url, "DOWNLOAD_TIMEOUT": TIMEOUT},
            "launcher": _launch,
        }
        workers = [
            stack.enter_context(start_crawl(web, folder=folder / each, **given)) for each in "12"
        ]
        scene = Scene(web, server, workers, random.Random(name))
        for _ in range(fault.times):
            fault.plant(scene)
        crawls = [each.wait() for each in workers]
        blamed = _blamed(server.url, web)
        last = stack.enter_context(start_crawl(web, folder=folder / "3", **given))
        crawls.append(last.wait())
        failed, left = _sources(server.url, sources)
        broken = violations(
            web.log,
            serial=False,
            crawl_delays=web.crawl_delays,
            robots_ttl=DAY,
            revisit=DAY,
            declared=sources,
        )
    exits = [f"a crawl exits with {each.exit_code}" for each in crawls if each.exit_code]
    return _counted(broken, fault.again, failed, blamed, left, exits)


def _launch(command: list[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
    """Start a process that ends with this one, also while it is stopped."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], **options)


def _sites(sources: int) -> list[Site]:
    """Return three hosts with many sources, a secure one, and some with a few."""
    many = {f"/feed{number}": _feed() for number in range(sources)}
    few = {f"/feed{number}": _feed() for number in range(4)}
    slow = {f"/feed{number}": _feed(delay=SLOW) for number in range(2)}
    busy: Page = [Reply(status=429, headers={"Retry-After": "4"}), _feed()]
    moved = {
        f"/feed{number}": redirect(f"http://new.example/page{number}", 302) for number in range(4)
    }
    pages = {f"/page{number}": _feed() for number in range(4)}
    return [
        *(Site(host, PATIENT, many) for host in CHAINS),
        Site(SECURE, PATIENT, many, tls=Certificate.GOOD),
        *(Site(f"plain{number}.example", ROBOTS, few) for number in range(4)),
        Site("slow.example", ROBOTS, slow),
        Site(BUSY, ROBOTS, few | {"/feed1": busy}),
        Site(MOVED, ROBOTS, {path: _late(page) for path, page in moved.items()}),
        Site("new.example", ROBOTS, pages | few),
    ]


def _feed(delay: float = ANSWER) -> Reply:
    return Reply(rss("Blog", ["One"]), content_type="application/rss+xml", delay=delay)


def _late(page: Reply) -> Reply:
    return Reply(status=page.status, headers=page.header_pairs(), content_type=None, delay=ANSWER)


def _blamed(url: str, web: SlowWeb) -> list[str]:
    """Return a sentence for each host that is on hold, unreachable or delayed for nothing."""
    engine = create_engine(url)
    with engine.connect() as connection:
        hosts = connection.execute(
            text(
                "SELECT host, greatest(interval, (SELECT max(pause) FROM requests "
                "WHERE requests.host = hosts.host)), hold_until > 0, silences, server_errors "
                "FROM hosts"
            )
        ).all()
    engine.dispose()
    found = []
    for host, delay, is_held, silences, errors in hosts:
        service = {"slow.example": SLOW, SECURE: HANDSHAKE + ANSWER}.get(host, ANSWER)
        if delay > max(1.0, web.crawl_delays.get(host, 0.0), service) + SLACK:
            found.append(f"{host} had a delay of {delay:.1f} s")
        if host != BUSY and (is_held or silences or errors):
            found.append(f"{host} is blamed: hold {is_held}, unreachable {silences}, {errors} 5xx")
    return found


def _sources(url: str, declared: list[str]) -> tuple[list[str], list[str]]:
    """Return a sentence for each source that failed, and for each that is left over."""
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT url, outcome, detail, failures FROM sources")).all()
    engine.dispose()
    read = {url for url, outcome, *_ in rows if outcome == "fetched"}
    failed = {url: f"{url}: {outcome}, {detail}" for url, outcome, detail, n in rows if n}
    return [*failed.values()], [f"{each} is left" for each in declared if each not in read]


def _counted(
    broken: list[str],
    again: int,
    failed: list[str],
    blamed: list[str],
    left: list[str],
    exits: list[str],
) -> tuple[Counter[str], list[str]]:
    kinds: dict[str, list[str]] = {
        "gaps too short": [],
        "at once": [],
        "holds broken": [],
        "fetched twice": [],
        "other": [],
    }
    for each in broken:
        kinds[_kind(each)].append(each)
    del kinds["fetched twice"][:again]
    kinds |= {"failed": failed, "blamed": blamed, "left over": left, "exits": exits}
    counted = Counter({kind: len(words) for kind, words in kinds.items()})
    return counted, [each for words in kinds.values() for each in words]


def _kind(sentence: str) -> str:
    """Return which goal a sentence of the judge is about."""
    rule = sentence[:2]
    if rule == "R4":
        return "at once" if "had ended" in sentence else "gaps too short"
    if "after the answered" in sentence:
        return "fetched twice"
    return "holds broken" if rule == "R5" else "other"


if __name__ == "__main__":
    raise SystemExit(not run(main))
