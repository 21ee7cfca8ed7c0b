"""Real crawls in simulated time: a week of runs takes seconds, and their log can be checked.

    first, second = simulate(Site("blog.example", pages={"/feed": feed}), starts=[0.0, DAY],
                             sources=["http://blog.example/feed"], folder=tmp_path)
    assert_polite(first.log + second.log)

Engine, scheduler, middlewares, spider and state are those of a crawl. The clock and the web are
simulated: the clock advances at once to the next timer, and the web answers without sockets. All
runs are made in one other process, one after the other.
"""

import asyncio
import math
import pickle
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from walsh_scrapy.testing.crawl import (
    CrawlResult,
    Launcher,
    SourceLike,
    copy_new_state,
    environment_of,
    find_project,
    settings_of,
)
from walsh_scrapy.testing.site import Site

#: Seconds.
DAY: Final = 86_400.0
_MODULE: Final = "walsh_scrapy.testing.simulated"
_TAIL: Final = 4000


@dataclass(frozen=True)
class Plan:
    """The runs for the process of a simulation."""

    sites: tuple[Site, ...]
    starts: tuple[float, ...]
    spider: str
    settings: dict[str, object]
    arguments: dict[str, object]


def simulate(
    *sites: Site,
    starts: Sequence[float] = (0.0,),
    folder: Path,
    sources: Iterable[SourceLike] | Path | None = None,
    spider: str = "feeds",
    settings: Mapping[str, object] | None = None,
    arguments: Mapping[str, object] | None = None,
    project: Path | None = None,
    launcher: Launcher = subprocess.Popen,
    timeout: float = 600.0,
) -> list[CrawlResult]:
    """Run a spider at each of `starts`, in seconds after 2026-01-01 00:00:00 UTC.

    If the last run has not ended by then, a run begins at its end. The runs share the state in
    `folder`. A page may be a function only if its module can be imported by name. `seconds` and
    the log of a result are in simulated time. The other arguments are those of `run_crawl`; the
    timeout is in real seconds. Raises RuntimeError if the simulation breaks off.
    """
    root = find_project(project or Path.cwd())
    folder.mkdir(parents=True, exist_ok=True)
    run = Path(tempfile.mkdtemp(prefix="simulation-", dir=folder.resolve()))
    given = settings_of(run, sources) | dict(settings or {})
    given = {
        name: str(value) if isinstance(value, Path) else value for name, value in given.items()
    }
    if "WALSH_BLOCKLIST_URL" not in given:
        copy_new_state(str(given["WALSH_STATE_URL"]))
    plan = Plan(sites, tuple(starts), spider, given, dict(arguments or {}))
    (run / "plan").write_bytes(pickle.dumps(plan))
    with (run / "log").open("wb") as log:
        process = launcher(
            [sys.executable, "-m", _MODULE, str(run)],
            cwd=root,
            env=environment_of(root),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        status = process.wait(timeout)
    finally:
        process.kill()
    if status:
        tail = (run / "log").read_text(errors="replace")[-_TAIL:]
        raise RuntimeError(f"the simulation ended with {status}; its log:\n{tail}")
    results: list[CrawlResult] = pickle.loads((run / "results").read_bytes())  # noqa: S301 - ours
    return results


#: Where a fake clock starts: 2026-01-01 00:00:00 UTC.
EPOCH: Final = 1_767_225_600.0


class FakeClock:
    """Epoch seconds as `now()`, the same as an aware datetime; pass `clock.now` as the clock.

    A test may set `at` to any moment, also to an earlier one.
    """

    def __init__(self, start: float | datetime = EPOCH) -> None:
        self.at = start.timestamp() if isinstance(start, datetime) else start

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self.at

    monotonic = moment = now

    def datetime(self) -> datetime:
        """Return the same moment as an aware datetime in UTC."""
        return datetime.fromtimestamp(self.at, UTC)

    def advance(self, by: float | timedelta) -> float:
        """Move forward by seconds or a timedelta and return the new time."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds} s")
        self.at += seconds
        return self.at


#: Ticks of the clock per second. A power of two, so that the difference of two times is exact:
#: Scrapy would else wait for the rounding error of a wait, again and again.
_TICKS: Final = 2**20
#: Turns of the loop while the clock stands still. The trial needs 207.
_MOST_TURNS: Final = 50_000


class SimulatedTime(selectors.DefaultSelector):
    """The clock of each crawl, and a selector that never waits: it advances to the next timer."""

    at = 0.0  #: seconds since the beginning of the simulation
    _turns = 0  #: of the loop since the clock was advanced

    @property
    def wall(self) -> float:
        """Epoch seconds."""
        return EPOCH + self.at

    def now(self) -> float:
        """Return epoch seconds."""
        return self.wall

    def monotonic(self) -> float:
        """Return seconds since the beginning; no machine sleeps in a simulation."""
        return self.at

    moment = monotonic

    @property
    def kept(self) -> float:
        """Seconds since the beginning, rounded as the epoch seconds in the state are."""
        return self.wall - EPOCH

    def select(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - as typeshed has it
        """Return the ready files; without any, advance the clock by `timeout`.

        Raises RuntimeError if the loop is busy so long that it always will be.
        """
        ready = super().select(None if timeout is None else 0.0)
        self._turns += 1
        if not ready and timeout:
            self.at = math.ceil((self.at + timeout) * _TICKS) / _TICKS
            self._turns = 0
        elif self._turns > _MOST_TURNS:
            raise RuntimeError(f"it never ends: {_MOST_TURNS} turns of the loop in one moment")
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop in simulated time."""

    def __init__(self, clock: SimulatedTime) -> None:
        self._clock = clock
        super().__init__(clock)
        # Later than 97 days, a nanosecond more is the same float: a timer would never be ready.
        self._clock_resolution = 1 / _TICKS

    def time(self) -> float:
        """Return seconds since the beginning."""
        return self._clock.at
