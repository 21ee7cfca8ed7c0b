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

if sys.platform != "win32":
    import resource

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
    """Return what ``answer`` of a module returns for a question. Raises TooCostly."""
    return await asyncio.to_thread(_run, module, question, limits)


def _run(module: str, question: bytes, limits: Limits) -> bytes:
    arguments = (module, limits.seconds, limits.memory)
    program = _PROGRAM.format(path=sys.path, arguments=arguments)
    try:
        done = subprocess.run(  # noqa: S603 - our own program, by our own interpreter
            [sys.executable, "-c", program],
            input=question,
            capture_output=True,
            timeout=_PATIENCE * limits.seconds,
            check=True,
        )
    except OSError as error:
        raise TooCostly(f"no process could be started for it: {error.strerror}") from error
    except subprocess.SubprocessError as error:
        most = f"{limits.seconds} s or {limits.memory >> 20} MiB"
        raise TooCostly(f"it needs more than {most}") from error
    return done.stdout


def main(module: str, seconds: int, memory: int) -> None:
    """Answer the question on standard input, within ``seconds`` of CPU and ``memory`` bytes."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = sys.stdin.buffer.read()
    sys.stdout.buffer.write(import_module(module).answer(question))
