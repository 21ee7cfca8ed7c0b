"""Calls functions in a separate process, for work that may cost too much: documents and schemas.

The event loop goes on while a call runs, one call at a time (decision 34). The process is killed
when a call exceeds its limits, and when the crawl ends. robots.txt and the blocklist are read in
the process of the crawl, because their parsers are bounded.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, ParamSpec, TypeVar, cast

from walsh_scrapy.crawl.childprocess import OUT_OF_MEMORY, PROGRAM, TooCostly
from walsh_scrapy.crawl.context import SystemClock
from walsh_scrapy.crawl.ticket import rank_of
from walsh_scrapy.exceptions import MachineTrouble, StillDue
from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from walsh_scrapy.crawl.context import Clock
    from walsh_scrapy.crawl.scrapyinternals import Engine

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds between two checks whether the crawl is over.
POLL_SECONDS: Final = 0.1
#: A call may take so many seconds of wall time for each second of processor time, because other
#: processes use the processor too.
WALL_TIME_FACTOR: Final = 6.0
#: The exit status of a process that has used up its processor time; None where there is no limit.
_USED_UP: Final = -getattr(signal, "SIGPROF", 0) or None


class Interrupted(Exception):
    """A call was stopped because the crawl is over."""


@dataclass(frozen=True, slots=True)
class CostLimits:
    """The limits of one call: seconds of processor time, and bytes of memory.

    Where the system has no such limits, only ``WALL_TIME_FACTOR`` times the seconds counts.
    """

    seconds: float
    memory: int  #: the process itself needs 40 MiB of it


class IsolatedProcess:
    """Calls functions in a process, which is started for the first call and kept for later calls.

    ``is_over`` returns True if the crawl is over; ``grace`` is the number of seconds that a running
    call has left then.
    """

    def __init__(self, limits: CostLimits, is_over: Callable[[], bool], grace: float = 0.0) -> None:
        self._limits = limits
        self._is_over = is_over
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = asyncio.Lock()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function, or raise its exception.

        The function and its arguments must be picklable. Raises TooCostly if the call exceeds its
        limits, Interrupted if the crawl ends, and OSError if no process can be started.
        """
        message = pickle.dumps((function, args, kwargs))
        async with self._turn:
            process = self.start()
            running = asyncio.ensure_future(asyncio.to_thread(_ask_process, process, message))
            remaining = WALL_TIME_FACTOR * self._limits.seconds
            is_interrupted = False
            # Polled, because Scrapy has no signal for the moment at which a spider begins to close.
            while not (await asyncio.wait({running}, timeout=POLL_SECONDS))[0]:
                if self._is_over() and not is_interrupted:
                    is_interrupted = True
                    remaining = min(remaining, self._grace)
                remaining -= POLL_SECONDS
                if remaining <= 0:
                    process.kill()
            answer = await running
            status = None if answer else self.close()
        if answer is None:
            if is_interrupted:
                raise Interrupted
            if remaining <= 0 or status == _USED_UP:
                raise TooCostly(f"took longer than {self._limits.seconds:g} s")
            if status == OUT_OF_MEMORY:
                raise TooCostly(f"needs more than {self._limits.memory >> 20} MiB of memory")
            raise TooCostly(f"ended its process ({status})")
        result: T | Exception = answer[0]
        if isinstance(result, Exception):
            raise result
        return result

    def start(self) -> subprocess.Popen[bytes]:
        """Return the process; start it if it is not running. Raises OSError."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        self._process = process = self._process or self._start()
        return process

    def close(self) -> int | None:
        """Kill the process and return its exit status, as `subprocess` does.

        The next call starts another process.
        """
        process = self._process
        if process is None:
            return None
        self._process = None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # bytes that were not sent
                cast("BinaryIO", pipe).close()
        return process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a process. It is not forked, because a crawl has threads."""
        path = os.pathsep.join(map(os.path.abspath, sys.path))
        program = PROGRAM % (self._limits.seconds, self._limits.memory)
        return subprocess.Popen(  # noqa: S603 - our program, by our interpreter
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )


def _ask_process(process: subprocess.Popen[bytes], message: bytes) -> tuple[Any] | None:
    """Return the answer of the process in a tuple, or None if it gave none. Runs in a thread."""
    question = cast("BinaryIO", process.stdin)
    answer = cast("BinaryIO", process.stdout)
    try:
        question.write(message)
        question.flush()
        return (pickle.load(answer),)  # noqa: S301 - of our process
    except Exception:  # noqa: BLE001 - usually the process ended or was killed
        return None


# ---- the calls of a crawl ----


#: The limits of reading one document.
LIMITS: Final = CostLimits(seconds=5, memory=200 * 1024 * 1024)
#: Seconds that the document which is being read has left when the crawl ends.
GRACE_SECONDS: Final = 1.0


class Reader:
    """Reads the documents of one crawl.

    If documents are expected, the process starts while the first robots.txt is fetched. Otherwise
    it starts with the first document.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._clock = clock
        # In simulated time another process would seem to take hours.
        self._is_isolated = isinstance(clock, SystemClock)
        self._is_expecting = False
        self._process = IsolatedProcess(LIMITS, lambda: engine.is_closing, GRACE_SECONDS)
        self.close = self._process.close

    def expect_documents(self) -> None:
        """Start the process with the first request for a robots.txt."""
        self._is_expecting = self._is_isolated

    def request_reached_downloader(self, request: Request) -> None:
        """Start the process if this is the first request for a robots.txt, and it is expected."""
        if self._is_expecting and rank_of(request) is Rank.ROBOTS:
            self._is_expecting = False
            with suppress(OSError):  # reading the first document will raise it
                self._process.start()

    async def call(
        self, url: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return the result of a function that reads the response from a URL.

        Raises TooCostly with a sentence, StillDue if the crawl ends before the result, and
        MachineTrouble if no process can be started.
        """
        if not self._is_isolated:
            return function(*args, **kwargs)
        try:
            return await self._process.call(function, *args, **kwargs)
        except TooCostly as error:
            raise TooCostly(f"Reading {url} {error}.") from None
        except Interrupted:
            raise StillDue(self._clock.now(), "the crawl ended") from None
        except OSError as error:
            reason = f"no process could be started to read {url}: {error.strerror}"
            raise MachineTrouble(self._clock.now(), reason) from error
