"""A separate process for costly work: documents, lists, schemas (decision 34).

The event loop goes on meanwhile. The process is ended when a call costs more than its limits, and
with the crawl; then its memory is the system's again.
"""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, ParamSpec, TypeVar, cast

from walsh_scrapy.crawl.childprocess import OUT_OF_MEMORY, PROGRAM, TooCostly

P = ParamSpec("P")
T = TypeVar("T")

LOOK_SECONDS: Final = 0.1  #: between two looks whether the crawl is over
#: Seconds of wall time for each of processor time, which a busy machine does not give at once.
PATIENCE: Final = 6.0
#: The exit status of a process that has used up its processor time; not on every system.
_USED_UP: Final = -getattr(signal, "SIGPROF", 0) or None


class Interrupted(Exception):
    """A call has no result, because the crawl is over."""


@dataclass(frozen=True, slots=True)
class CostLimits:
    """The limits of one call: seconds of processor time, and bytes of memory.

    Where the system cannot limit them, the call may take ``PATIENCE`` times as long.
    """

    seconds: float
    memory: int  #: of which the process itself needs 40 MiB


class IsolatedProcess:
    """Calls functions in a process that is started at the latest for a call, and kept for the next.

    ``is_over`` returns whether the crawl is over; ``grace`` are the seconds for a call in hand
    then.
    """

    def __init__(self, limits: CostLimits, is_over: Callable[[], bool], grace: float = 0.0) -> None:
        self._limits = limits
        self._is_over = is_over
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = asyncio.Lock()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function, or raise its exception.

        The function must have a name in a module, and its arguments must fit pickle. Raises
        TooCostly and Interrupted, and OSError if no process can be started.
        """
        message = pickle.dumps((function, args, kwargs))
        async with self._turn:
            process = self.start()
            running = asyncio.ensure_future(asyncio.to_thread(_ask, process, message))
            left, is_over = PATIENCE * self._limits.seconds, False
            # Scrapy has no signal for the moment at which a spider begins to close.
            while not (await asyncio.wait({running}, timeout=LOOK_SECONDS))[0]:
                if self._is_over() and not is_over:
                    left, is_over = min(left, self._grace), True
                left -= LOOK_SECONDS
                if left <= 0:
                    process.kill()
            answer = await running
            status = None if answer else self.close()
        if answer is None:
            if is_over:
                raise Interrupted
            if left <= 0 or status == _USED_UP:
                raise TooCostly(f"took longer than {self._limits.seconds:g} s")
            if status == OUT_OF_MEMORY:
                raise TooCostly(f"needs more than {self._limits.memory >> 20} MiB of memory")
            raise TooCostly(f"ended its process ({status})")
        result: T | Exception = answer[0]
        if isinstance(result, Exception):
            raise result
        return result

    def start(self) -> subprocess.Popen[bytes]:
        """Return the process, started if it does not run. Raises OSError."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        self._process = process = self._process or self._start()
        return process

    def close(self) -> int | None:
        """End the process; return how it ended, as `subprocess` has it. A call starts another."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # the unsent rest
                cast("BinaryIO", pipe).close()
        return process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a process anew; a crawl has threads, so it is not forked."""
        path = os.pathsep.join(map(os.path.abspath, sys.path))
        program = PROGRAM % (self._limits.seconds, self._limits.memory)
        return subprocess.Popen(  # noqa: S603 - our program, by our interpreter
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )


def _ask(process: subprocess.Popen[bytes], message: bytes) -> tuple[Any] | None:
    """Return the answer of the process; None if there is none to read. Called in a thread."""
    question, answer = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
    try:
        question.write(message)
        question.flush()
        return (pickle.load(answer),)  # noqa: S301 - of our process
    except Exception:  # noqa: BLE001 - mostly it ended, or was ended
        return None
