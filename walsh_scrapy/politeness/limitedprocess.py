"""One call in a process of its own, which ends when it costs too much (decision 34).

The event loop goes on meanwhile, and the memory is the system's again afterwards.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from walsh_scrapy.runtime.stopsignals import is_stopping

if sys.platform != "win32":
    import resource

#: Seconds between two looks whether the crawl was stopped.
LOOK_SECONDS: Final = 0.2
#: Seconds of wall time for each second of CPU time, on a machine that does not get to it.
_PATIENCE: Final = 15.0
_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from walsh_scrapy.politeness.limitedprocess import main; main{arguments!r}"
)


class TooCostly(Exception):
    """No answer came; the message says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may cost."""

    seconds: int  #: of CPU; on Windows only wall time is limited
    memory: int  #: bytes, which count on Unix


async def answer(module: str, question: bytes, limits: Limits) -> bytes:
    """Return what ``answer`` of a module returns for a question.

    Raises TooCostly, also if the crawl is stopped meanwhile.
    """
    with _process(module, limits) as process:
        running = asyncio.ensure_future(asyncio.to_thread(process.communicate, question))
        left = _PATIENCE * limits.seconds
        while not (await asyncio.wait({running}, timeout=LOOK_SECONDS))[0]:
            left -= LOOK_SECONDS
            if left <= 0 or is_stopping():
                process.kill()
        found, _ = await running
    if process.returncode and is_stopping():
        raise TooCostly("the crawl was stopped")
    if process.returncode:
        raise TooCostly(f"it needs more than {limits.seconds} s or {limits.memory >> 20} MiB")
    return found


def _process(module: str, limits: Limits) -> subprocess.Popen[bytes]:
    arguments = (module, limits.seconds, limits.memory)
    program = _PROGRAM.format(path=sys.path, arguments=arguments)
    try:
        return subprocess.Popen(  # noqa: S603 - our own program, by our own interpreter
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise TooCostly(f"no process could be started for it: {error.strerror}") from error


def main(module: str, seconds: int, memory: int) -> None:
    """Answer the question on standard input, within ``seconds`` of CPU and ``memory`` bytes."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = sys.stdin.buffer.read()
    sys.stdout.buffer.write(import_module(module).answer(question))
