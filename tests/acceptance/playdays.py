"""Plays random days: real crawls in simulated time, each worker in a process of its own.

A worker is a fork of this process, so it starts in milliseconds, and a kill ends it at once,
whatever it was doing. Of two workers that run together only one runs at a time: the one whose
clock is behind. So the same days are played the same way each time.
"""

import gc
import math
import os
import traceback
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn

import walsh_scrapy.crawl.context
from tests.acceptance.randomdays import LIST_URL, Act, Crawl, Days, Kill, Worker, sites
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state import State
from walsh_scrapy.testing.crawl import read_items, write_sources
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.simulated import (
    SimulatedAddon,
    SimulatedHandler,
    Simulation,
    simulate_here,
)
from walsh_scrapy.testing.simulation import EPOCH, SimulatedTime

#: Real seconds after which a worker that says nothing hangs.
_HANG_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a worker did; times are true, in seconds since the first crawl."""

    crawl: Crawl
    started: float
    ended: float
    is_killed: bool
    log: tuple[Hit, ...]
    items: tuple[dict[str, Any], ...]
    error: str = ""  #: the first traceback of its log
    #: Seconds by which the clock had been set forward and back before it, all steps together.
    forward: float = 0.0
    backward: float = 0.0


@dataclass
class Played:
    """Days, and what happened in them."""

    days: Days
    state_url: str
    runs: list[Run] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)  #: with the true times at which they were done

    @property
    def until(self) -> float:
        """When everything had ended."""
        return max((run.ended for run in self.runs), default=0.0)


class CrawlerClock:
    """The clock of a worker, which may be wrong. Its monotonic clocks are right."""

    def __init__(self, time: SimulatedTime, ahead: float) -> None:
        self._time = time
        self._ahead = ahead

    def now(self) -> float:
        """Return epoch seconds."""
        return self._time.now() + self._ahead

    def monotonic(self) -> float:
        """Return seconds since the first crawl."""
        return self._time.at

    moment = monotonic


class WorkerTime(SimulatedTime):
    """The time of a worker: it goes on when no other worker is behind, and ends with a kill."""

    def __init__(self, at: float, parent: Connection, kill: Kill | None) -> None:
        super().__init__()
        self.at = at
        self._parent = parent
        self._horizon = -math.inf  # the time up to which no other worker has anything to do
        self._kill = kill
        self._killed_at = math.inf
        self._turns_left = 0

    def select(self, timeout: float | None = None) -> Any:
        """Advance the clock as a simulation does; wait until it is the turn of this worker."""
        ready = super().select(timeout)
        if self._kill is not None:
            self._watch(self._kill)
        self.wait_for_turn()
        return ready

    def wait_for_turn(self) -> None:
        """Wait while another worker is behind."""
        if self.at > self._horizon:
            self._parent.send(self.at)
            self._horizon = self._parent.recv()

    def _watch(self, kill: Kill) -> None:
        """Die, if it is time to."""
        if math.isinf(self._killed_at):
            log = SimulatedHandler.web.log.entries()
            done = [hit for hit in log if not kill.is_answered or math.isfinite(hit.ended)]
            if len(done) >= kill.request:
                self._killed_at = self.at + kill.seconds
                self._turns_left = kill.turns
        if self.at >= self._killed_at:
            self._turns_left -= 1
            if self._turns_left < 0:
                _end(self._parent, "killed", SimulatedHandler.web.log.entries(), self.at, "")


def _end(parent: Connection, how: str, log: Sequence[Hit], at: float, error: str) -> NoReturn:
    """Report the end of this worker, and end it as a kill does: nothing is closed."""
    parent.send((how, tuple(log), at, error))
    os._exit(0)


def play(days: Days, folder: Path, state_url: str) -> Played:
    """Play some days on a new state, which stays."""
    played = Played(days, state_url)
    at = ahead = forward = backward = 0.0
    for number, step in enumerate(days.steps):
        at = max(at, step.at)
        forward += max(0.0, step.ahead - ahead)
        backward += max(0.0, ahead - step.ahead)
        ahead = step.ahead
        if isinstance(step, Act):
            _act(step, at, state_url)
            played.acts.append(replace(step, at=at))
            continue
        place = folder / f"crawl-{number}"
        place.mkdir(parents=True)
        # One file for all crawls, so that the state sees an edit of it.
        write_sources(folder / "sources.toml", step.sources)
        settings = {
            "WALSH_SOURCES": str(folder / "sources.toml"),
            "WALSH_STATE_URL": state_url,
            "WALSH_BLOCKLIST_URL": LIST_URL,
            "WALSH_BLOCKLIST_SCHEMA_URL": "",
        }
        for run in _crawl(days, step, at, settings, place):
            played.runs.append(replace(run, forward=forward, backward=backward))
        at = played.until
    return played


def _act(act: Act, at: float, state_url: str) -> None:
    with closing(State(state_url, lambda: EPOCH + at + act.ahead)) as state:
        if act.what == "resume":
            Stores(state).sources.resume(act.subject, host_of(act.subject))
        elif act.what == "release":
            state.hosts.release(act.subject, "they wrote: go on")
        else:
            state.hosts.set_delay(act.subject, act.seconds, "they asked for it")


def _crawl(
    days: Days, crawl: Crawl, at: float, settings: dict[str, object], folder: Path
) -> list[Run]:
    """Let the workers of a crawl run, each as far as the others allow."""
    workers = []
    for number, planned in enumerate(crawl.workers):
        place = folder / f"worker-{number}"
        place.mkdir()
        workers.append(_fork(days, crawl, planned, at + planned.late, settings, place))
    wanted = {worker: _receive(worker.connection) for worker in workers}
    runs = []
    while wanted:
        worker = min(wanted, key=lambda one: wanted[one])
        del wanted[worker]
        worker.connection.send(min(wanted.values(), default=math.inf))
        message = _receive(worker.connection)
        if isinstance(message, float):
            wanted[worker] = message
        else:
            os.waitpid(worker.process, 0)
            worker.connection.close()
            runs.append(_run(crawl, worker, *message))
    return runs


@dataclass(frozen=True, slots=True)
class _Forked:
    """A worker that runs in a process of its own."""

    process: int
    connection: Connection
    start: float
    place: Path  #: the folder of its files


def _fork(
    days: Days, crawl: Crawl, worker: Worker, start: float, settings: dict[str, object],
    place: Path,
) -> _Forked:  # fmt: skip
    ours, theirs = Pipe()
    process = os.fork()
    if not process:
        ours.close()
        _work(days, crawl, worker, start, settings, place, theirs)
    theirs.close()
    return _Forked(process, ours, start, place)


def _receive(worker: Connection) -> Any:
    if not worker.poll(_HANG_SECONDS):
        raise TimeoutError(f"a worker said nothing for {_HANG_SECONDS:g} s")
    return worker.recv()


def _run(crawl: Crawl, worker: _Forked, how: str, log: Sequence[Hit], at: float, error: str) -> Run:
    # What a killed process had under way ends with it, as its server sees.
    ended = tuple(hit if math.isfinite(hit.ended) else replace(hit, ended=at) for hit in log)
    items = tuple(read_items(worker.place / "items.jsonl"))
    return Run(crawl, worker.start, at, how == "killed", ended, items, error)


def _work(
    days: Days, crawl: Crawl, worker: Worker, start: float, settings: dict[str, object],
    place: Path, parent: Connection,
) -> NoReturn:  # fmt: skip
    """Crawl, in a process of its own."""
    time = WorkerTime(start, parent, worker.kill)
    try:
        time.wait_for_turn()
        # Jitter by chance, but the same each time.
        seeded = partial(Random, start)
        setattr(walsh_scrapy.crawl.context, "Random", seeded)  # noqa: B010 - a module, to mypy
        arguments = {"force": "1"} if crawl.force else {}

        async def run(_: SimulatedTime) -> str:
            simulation = Simulation(sites(days), time)
            SimulatedAddon.clock = CrawlerClock(time, crawl.ahead)
            result = await simulation.crawl("feeds", settings, arguments, place)
            _, found, trace = result.stderr.partition("Traceback (most recent call last)")
            return found and trace[-2000:]

        error = simulate_here(run, time)
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it is
        error = traceback.format_exc()
    _end(parent, "ended", SimulatedHandler.web.log.entries(), time.at, error)


def warm_up(folder: Path, days: Days) -> None:
    """Import all that a crawl needs, so that each fork has it."""
    ours, theirs = Pipe()
    time = WorkerTime(0.0, theirs, None)
    ours.send(math.inf)
    settings: dict[str, object] = {
        "WALSH_SOURCES": str(write_sources(folder / "warm.toml", ["http://a.example/feed"])),
        "WALSH_STATE_URL": f"sqlite:///{folder}/warm.sqlite3",
        "WALSH_BLOCKLIST_URL": LIST_URL,
        "WALSH_BLOCKLIST_SCHEMA_URL": "",
    }

    async def run(_: SimulatedTime) -> None:
        await Simulation(sites(days), time).crawl("feeds", settings, {}, folder)

    simulate_here(run, time)
    SimulatedHandler.web.log.clear()
    gc.collect()
    gc.freeze()
