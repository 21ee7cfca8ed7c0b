"""Real crawls in simulated time: a week of runs takes seconds, and their log can be checked.

    first, second = simulate(Site("blog.example", pages={"/feed": feed}), starts=[0.0, DAY],
                             sources=["http://blog.example/feed"], folder=tmp_path)
    assert_polite(first.log + second.log)

Engine, scheduler, middlewares, spider and state are real. The clock and the web are simulated: the
clock jumps to the next timer, and the web answers without sockets. All runs happen in one separate
process, one after the other.
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

#: Seconds in a day.
DAY: Final = 86_400.0
_MODULE: Final = "walsh_scrapy.testing.simulated"
_TAIL: Final = 4000


@dataclass(frozen=True)
class Plan:
    """What the process of a simulation has to do."""

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
    """Run a spider once for each of `starts`, in seconds after 2026-01-01 00:00:00 UTC.

    A run that is due before the previous one has ended begins at its end. All runs share the state
    in `folder`. A page may be a function only if its module can be imported by name, because the
    sites are pickled. The other arguments are as for `run_crawl`; `timeout` is in real seconds.

    Return one result per run, with `seconds` and the log in simulated time. Raises RuntimeError if
    the simulation fails, and subprocess.TimeoutExpired.
    """
    root = find_project(project or Path.cwd())
    folder.mkdir(parents=True, exist_ok=True)
    run = Path(tempfile.mkdtemp(prefix="simulation-", dir=folder.resolve()))
    values = settings_of(run, sources) | dict(settings or {})
    values = {
        name: str(value) if isinstance(value, Path) else value for name, value in values.items()
    }
    if "WALSH_BLOCKLIST_URL" not in values:
        copy_new_state(str(values["WALSH_STATE_URL"]))
    plan = Plan(sites, tuple(starts), spider, values, dict(arguments or {}))
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
        raise RuntimeError(f"the simulation ended with exit status {status}; its log:\n{tail}")
    results: list[CrawlResult] = pickle.loads((run / "results").read_bytes())  # noqa: S301 - ours
    return results


#: Where a fake clock starts: 2026-01-01 00:00:00 UTC.
EPOCH: Final = 1_767_225_600.0


class FakeClock:
    """A clock that moves only when a test moves it. Pass `clock.now` wherever a clock is expected.

    `at` is its time in seconds since the epoch. A test may set it to any moment, also to an earlier
    one.
    """

    def __init__(self, start: float | datetime = EPOCH) -> None:
        self.at = start.timestamp() if isinstance(start, datetime) else start

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self.at

    monotonic = moment = now

    def datetime(self) -> datetime:
        """Return the time as an aware datetime in UTC."""
        return datetime.fromtimestamp(self.at, UTC)

    def advance(self, by: float | timedelta) -> float:
        """Move forward by seconds or a timedelta and return the new time."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if seconds < 0:
            raise ValueError(f"advance() cannot go back by {-seconds} s; set `at` instead")
        self.at += seconds
        return self.at


#: Ticks of the clock per second. A power of two, so that the difference of two times is exact.
#: Otherwise Scrapy would wait again for each rounding error.
_TICKS: Final = 2**20
#: The maximum number of iterations of the loop while the clock stands still. The conformance test
#: needs 207.
_MAX_TURNS: Final = 50_000


class SimulatedTime(selectors.DefaultSelector):
    """The clock of a simulation, and its selector, which advances the clock instead of waiting."""

    at = 0.0  #: seconds since the beginning of the simulation
    _turns = 0  #: iterations of the loop since the clock was advanced

    @property
    def wall(self) -> float:
        """The simulated time in seconds since the epoch."""
        return EPOCH + self.at

    def now(self) -> float:
        """Return the simulated time in seconds since the epoch."""
        return self.wall

    def monotonic(self) -> float:
        """Return the seconds since the beginning of the simulation."""
        return self.at

    moment = monotonic

    @property
    def rounded(self) -> float:
        """Seconds since the beginning, with the precision of epoch seconds in the state."""
        return self.wall - EPOCH

    def select(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - as typeshed has it
        """Return the files that are ready; if there are none, advance the clock by `timeout`.

        Raises RuntimeError if the loop never becomes idle.
        """
        ready = super().select(None if timeout is None else 0.0)
        self._turns += 1
        if not ready and timeout:
            self.at = math.ceil((self.at + timeout) * _TICKS) / _TICKS
            self._turns = 0
        elif self._turns > _MAX_TURNS:
            raise RuntimeError(f"it never ends: {_MAX_TURNS} iterations at one simulated moment")
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop in simulated time."""

    def __init__(self, clock: SimulatedTime) -> None:
        self._clock = clock
        super().__init__(clock)
        # asyncio's resolution of a nanosecond is lost in a float after 97 days, and then no timer
        # would ever be ready.
        self._clock_resolution = 1 / _TICKS

    def time(self) -> float:
        """Return the seconds since the beginning of the simulation."""
        return self._clock.at
