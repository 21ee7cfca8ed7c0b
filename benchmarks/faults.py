"""Two workers on one PostgreSQL, whose processes stand still or go away at the worst moments.

    python -m benchmarks.faults [NAME ...]

Each fault has a separate run: a PostgreSQL server, a web, and two crawls of the same sources. The
web is the trigger: a worker is stopped (SIGSTOP) when its request has arrived. When both crawls
have ended, a third one does the rest. Goals, by the log of the web: no gap is too short, no host
has two requests at once, no hold is broken, no source is fetched twice. A source in flight at a
stopped worker may be fetched once more, because others take its hosts over. Goals, by the state:
nobody is blamed, so no source has failed, and no host is on hold or gets a longer delay. Nothing is
left over, and each crawl exits with 0. If a goal is missed, the exit status is 1.

The database is stopped at random moments, the same in each run. `none` is a run without a fault.
"""

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
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.postgresql import Server
from benchmarks.report import Figure, Report, run
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.testing.crawl import Crawl, start_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.hit import FAILED, ConnectionRecord, Hit
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.site import Certificate, Reply, Site, redirect

MAX_SIMULTANEOUS_RUNS = 5
MAX_TRIES = 3  #: runs until the moment for a fault has come
#: Seconds of one exchange at most. The longer stop of the database outlasts it, and the time for
#: which its host is reserved.
TIMEOUT = 4
CRAWL_TIMEOUT_SECONDS = 240.0  #: for the end of a crawl after the fault
LATENCY = 0.3  #: seconds until a connection is made, and as many until an answer; twice for TLS
SLOWER = 1.5  #: more seconds of the slow host: often a worker's beat falls into the exchange
CRAWL_DELAY = 3  #: seconds, of the hosts with many sources
#: Seconds that a delay by latency may be longer: latency, and a busy machine.
SLACK = 1.2
#: Sources of each host with many; half as many redirect. Their chains outlast each fault.
SOURCES = 8
PATIENT = f"User-agent: *\nCrawl-delay: {CRAWL_DELAY}\n"
CHAINS = ("chain1.example", "chain2.example", "chain3.example")
SECURE, BUSY, SLOW = "secure.example", "busy.example", "slow.example"


@dataclass(frozen=True)
class Scene:
    """The scene of a fault."""

    web: DirectWeb
    server: Server
    workers: list[Crawl]
    chance: random.Random
    #: URLs that may be requested again, because a worker stood still before it was done with them.
    unfinished: set[str] = field(default_factory=set)

    def request(self, *hosts: str, path: str = "/") -> Hit:
        """Wait for the next request that is in flight: for a page of these hosts, or any."""
        since = time.monotonic()

        def arrived(hit: Hit) -> bool:
            is_wanted = not hosts or (hit.host in hosts and hit.path != "/robots.txt")
            is_new = hit.started > since and math.isinf(hit.ended)
            return is_wanted and is_new and hit.path.startswith(path)

        hit: Hit = _first(self.web.wait_for, arrived)
        return hit

    def moment(self) -> None:
        """Wait for a moment within one second after a request, half of them slow ones."""
        self.request(*self.chance.choice(((), (SLOW,))))
        time.sleep(self.chance.random())

    def worker_of(self, *clients: int) -> Crawl | None:
        """Return the worker that has a socket at one of these ports."""
        return next((worker for worker in self.workers if ports_of(worker.pid) & {*clients}), None)

    @contextmanager
    def stopped(self, *workers: Crawl) -> Iterator[None]:
        """Stop workers (SIGSTOP) until the block ends."""
        for worker in workers:
            os.kill(worker.pid, signal.SIGSTOP)
        try:
            self.unfinished.update(self._under_way())
            yield
        finally:
            for worker in workers:
                os.kill(worker.pid, signal.SIGCONT)

    def _under_way(self) -> set[str]:
        """Return the URLs that were requested for a visit that is not in the state yet."""
        done = {url for url, outcome, *_ in self.server.rows(_SOURCES) if outcome == "fetched"}
        now = time.monotonic()
        return {
            hit.url
            for hit in self.web.log
            if (now - hit.ended < 1.0 if hit.path == "/robots.txt" else source_of(hit) not in done)
        }


def source_of(hit: Hit) -> str:
    """Return the source that a page was requested for: itself, or the one that redirects to it."""
    return f"http:/{hit.path}" if hit.path.startswith("/chain") else hit.url


def ports_of(pid: int) -> set[int]:
    """Return the local ports of the connections that a process has."""
    names = set[str]()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            names.add(str(descriptor.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in names}


def stop_database(scene: Scene, seconds: float) -> None:
    """Stop the database for these seconds."""
    scene.moment()
    with scene.server.stopped():
        time.sleep(seconds)


def restart_database(scene: Scene, how: signal.Signals) -> None:
    """Restart the database, as `pg_ctl restart` does."""
    scene.moment()
    scene.server.end(how)
    scene.server.start()


def cut_connections(scene: Scene) -> None:
    """Let the server end all its connections."""
    scene.moment()
    scene.server.cut()


def stop_in_flight(scene: Scene, seconds: float) -> None:
    """Stop a worker whose request is in flight."""
    while True:
        hit = scene.request(*CHAINS)
        if worker := scene.worker_of(hit.client):
            with scene.stopped(worker):
                if hit in scene.web.log:  # it has no end yet
                    time.sleep(seconds)
                    return


class NoMoment(Exception):
    """The crawls ended before the moment for the fault came."""


def stop_before_wire(scene: Scene, seconds: float, *, commits: bool) -> None:
    """Stop a worker when it has written that it sends a request, and has not sent it.

    Without `commits` that is in its transaction, which then stays open.
    """
    event, statement = ("SyncRep", "COMMIT") if commits else ("Lock", "INSERT INTO requests")
    while True:
        scene.request(*CHAINS)
        time.sleep(CRAWL_DELAY - LATENCY)  # the next request to that host comes soon
        with ExitStack() as stack:
            with scene.server.holding_commits() if commits else scene.server.locked("requests"):
                if worker := scene.worker_of(*scene.server.waiting(event, statement)):
                    stack.enter_context(scene.stopped(worker))
            time.sleep(4 * LATENCY)  # the other one sends its written requests
            sent = {hit.url for hit in scene.web.log}
            begun = {host_of(url) for (url,) in scene.server.rows(_BEGUN) if url not in sent}
            if worker and (begun.intersection(CHAINS) or not commits):
                time.sleep(seconds)
                return


def stop_in_handshake(scene: Scene, seconds: float) -> None:
    """Stop a worker while it waits for the answer to its ClientHello."""
    scene.request(SECURE)  # its robots.txt was read
    since, worker = time.monotonic(), None

    def began(connection: ConnectionRecord) -> bool:
        is_open = connection.handshake == FAILED and math.isinf(connection.closed)
        return is_open and connection.opened > since

    while worker is None:
        worker = scene.worker_of(_first(scene.web.wait_for_connections, began).client)
    with scene.stopped(worker):
        time.sleep(seconds)


def lose_database_in_redirect(scene: Scene, seconds: float) -> None:
    """Take the database away when a redirect is about to be answered, and bring it back later."""
    scene.request(*CHAINS, path="/moved")
    scene.server.end(signal.SIGINT)
    time.sleep(seconds)
    scene.server.start()


def fall_asleep(scene: Scene, seconds: float) -> None:
    """Stop workers and database together, while a request is in flight."""
    scene.request(*CHAINS)
    with scene.stopped(*scene.workers), scene.server.stopped():
        time.sleep(seconds)


#: By name, the function that plants a fault, and its number per run.
FAULTS: dict[str, tuple[Callable[[Scene], None], int]] = {
    "none": (lambda _: None, 1),
    "database-3s": (partial(stop_database, seconds=3), 4),
    "database-10s": (partial(stop_database, seconds=10), 3),
    "restart-fast": (partial(restart_database, how=signal.SIGINT), 4),
    "restart-immediate": (partial(restart_database, how=signal.SIGQUIT), 4),
    "cut": (cut_connections, 8),
    "flight-30s": (partial(stop_in_flight, seconds=30), 1),
    "flight-60s": (partial(stop_in_flight, seconds=60), 1),
    "between-30s": (partial(stop_before_wire, seconds=30, commits=True), 1),
    "between-60s": (partial(stop_before_wire, seconds=60, commits=True), 1),
    "handshake-30s": (partial(stop_in_handshake, seconds=30), 1),
    "handshake-60s": (partial(stop_in_handshake, seconds=60), 1),
    "transaction-30s": (partial(stop_before_wire, seconds=30, commits=False), 1),
    "redirect-4s": (partial(lose_database_in_redirect, seconds=4), 3),
    "redirect-25s": (partial(lose_database_in_redirect, seconds=25), 1),
    "asleep": (partial(fall_asleep, seconds=30), 1),
}


def main(report: Report, *names: str) -> None:
    """Plant the faults of these names, or all, several at a time."""
    total = Counter[str]()
    with ThreadPoolExecutor(MAX_SIMULTANEOUS_RUNS) as pool:
        runs = pool.map(_run, names or FAULTS)
        for name, findings in zip(names or FAULTS, runs, strict=True):
            counts = Counter({goal: len(sentences) for goal, sentences in findings.items()})
            report.add(name, *_figures(counts))
            for sentence in chain(*findings.values()):
                report.say(f"    {sentence}")
            total += counts
    report.add("all", *_figures(total))


def _figures(counts: Counter[str]) -> list[Figure]:
    """Return the number of all findings, and the numbers that are not 0."""
    kinds = [Figure(goal, count) for goal, count in counts.items() if count]
    return [Figure("found", counts.total(), max_value=0), *kinds]


def _run(name: str) -> dict[str, list[str]]:
    """Plant a fault in a run; return the findings, by the goal that was missed."""
    for _ in range(MAX_TRIES):
        with suppress(NoMoment):
            return _plant_fault(name)
    raise SystemExit(f"{name}: the moment for the fault did not come in {MAX_TRIES} runs")


def _plant_fault(name: str) -> dict[str, list[str]]:
    plant, times = FAULTS[name]
    sources = sorted(
        f"{'https' if site.tls else 'http'}://{site.host}{path}"
        for site in _sites()
        for path in site.pages
        if path.startswith(("/feed", "/moved"))
    )
    with ExitStack() as stack:
        server = stack.enter_context(Server())
        web = stack.enter_context(DirectWeb(*_sites(), latency=LATENCY))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options: dict[str, Any] = {
            "sources": sources,
            "settings": {"WALSH_STATE_URL": server.url, "DOWNLOAD_TIMEOUT": TIMEOUT},
            "launcher": _launch,
        }

        def start(name: str) -> Crawl:
            return stack.enter_context(start_crawl(web, folder=folder / name, **options))

        scene = Scene(web, server, [start("1"), start("2")], random.Random(name))
        for _ in range(times):
            plant(scene)
        exits = [*map(_end, scene.workers)]
        blamed = _blamed(scene)
        exits.append(_end(start("3")))
        outcome = {"blamed": blamed, "exits": [*filter(None, exits)]}
        return _broken(scene, sources) | _sources(scene, sources) | outcome


def _end(crawl: Crawl) -> str:
    """Wait for the end of a crawl; return its problem."""
    try:
        code = crawl.wait(CRAWL_TIMEOUT_SECONDS).exit_code
    except (RuntimeError, TimeoutError) as error:
        return str(error).partition("\n")[0]
    return f"a crawl exits with {code}" if code else ""


def _launch(command: list[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
    """Start a process that ends with this one, even while it is stopped."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], **options)


def _sites() -> list[Site]:
    """Return hosts with many sources, of which some redirect to the next host, and with a few."""
    feed = Reply(rss("Blog", ["One"]), content_type="application/rss+xml")
    many = {f"/feed{number}": feed for number in range(SOURCES)}
    few = {f"/feed{number}": feed for number in range(4)}
    refused = Reply(status=429, headers={"Retry-After": "4"})
    moved = [f"moved{number}" for number in range(SOURCES // 2)]
    chains = [
        many
        | {f"/{name}": redirect(f"http://{to}/{host}/{name}", 302) for name in moved}
        | {f"/{by}/{name}": feed for name in moved}
        for by, host, to in zip(CHAINS[-1:] + CHAINS, CHAINS, CHAINS[1:] + CHAINS, strict=False)
    ]
    return [
        *(Site(host, PATIENT, pages) for host, pages in zip(CHAINS, chains, strict=True)),
        Site(SECURE, PATIENT, many, tls=Certificate.GOOD),
        *(Site(f"plain{number}.example", pages=few) for number in range(4)),
        Site(SLOW, pages=dict.fromkeys(many, replace(feed, delay=SLOWER))),
        Site(BUSY, pages=few | {"/feed1": [refused, feed]}),
    ]


def _broken(scene: Scene, declared: list[str]) -> dict[str, list[str]]:
    """Check the log of the web."""
    delays, log = scene.web.crawl_delays, scene.web.log
    findings: dict[str, list[str]] = {"gaps too short": [], "at once": [], "holds": [], "other": []}
    for sentence in violations(log, serial=False, crawl_delays=delays, declared=declared):
        kind = {"R4": "at once" if "had ended" in sentence else "gaps too short", "R5": "holds"}
        findings[kind.get(sentence[:2], "other")].append(sentence)
    answered = Counter(hit.url for hit in log if hit.complete and 200 <= hit.status < 400)
    return findings | {
        "fetched twice": [
            f"{url} was fetched {count} times"
            for url, count in answered.items()
            if count > 1 + (url in scene.unfinished)
        ]
    }


_HOSTS = """
    SELECT host, hold_until > 0, unreachable, server_errors,
        greatest(delay, (SELECT max(requests.delay) FROM requests WHERE requests.host = hosts.host))
    FROM hosts
"""
_BEGUN = "SELECT url FROM requests WHERE duration IS NULL"
_SOURCES = "SELECT url, outcome, failures, detail FROM sources"


def _blamed(scene: Scene) -> list[str]:
    """Return a sentence for each host that is on hold, unreachable or delayed for nothing."""
    sentences = []
    for host, is_held, unreachable, errors, delay in scene.server.rows(_HOSTS):
        expected = scene.web.crawl_delays.get(host, SLOWER if host == SLOW else 1.0)
        if delay > expected + SLACK:
            sentences.append(f"{host} had a delay of {delay:.1f} s")
        if (is_held and host != BUSY) or unreachable or errors:
            sentences.append(f"{host}: hold {is_held}, unreachable {unreachable}, {errors} errors")
    return sentences


def _sources(scene: Scene, declared: list[str]) -> dict[str, list[str]]:
    """Return a sentence for each source that failed, and for each that was left over."""
    rows = scene.server.rows(_SOURCES)
    failed = [f"{url} failed: {detail}" for url, _, failures, detail in rows if failures]
    ended = {url for url, outcome, failures, _ in rows if failures or outcome == "fetched"}
    return {"failed": failed, "left over": sorted({*declared} - ended)}


def _first(wait_for: Callable[..., bool], is_wanted: Callable[[Any], bool]) -> Any:  # noqa: ANN401
    """Wait for an entry of a log of the web, and return it."""
    entries = list[Any]()

    def look(log: list[Any]) -> bool:
        entries[:] = filter(is_wanted, log)
        return bool(entries)

    if not wait_for(look, 120.0):
        raise NoMoment
    return entries[0]


if __name__ == "__main__":
    raise SystemExit(not run(main, names=FAULTS))
