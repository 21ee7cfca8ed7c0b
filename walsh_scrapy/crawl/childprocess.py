"""The program of the isolated process: it answers calls, within limits (decision 34).

It imports no more than it needs, because each crawl waits for its start.
"""

import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from walsh_scrapy.policy.wording import Explained

if sys.platform != "win32":
    import resource

#: The maximum size of a result, which both processes have in memory.
MAX_RESULT_BYTES: Final = 16 * 1024 * 1024
#: Bytes that are mapped from files: they are part of the memory, but no limit counts them.
_CODE_BYTES: Final = 16 * 1024 * 1024
#: The program, with the seconds and the bytes of `CostLimits`.
PROGRAM: Final = "from walsh_scrapy.crawl.childprocess import answer_calls; answer_calls(%r, %r)"
#: The exit status of a process that has used up its memory.
OUT_OF_MEMORY: Final = 77


class TooCostly(Explained):
    """A call exceeded its limits. The message is a verb and its object: "took longer than 5 s"."""


def answer_calls(seconds: float, memory: int) -> None:
    """Answer calls from standard input until that ends."""
    # A terminal and a service manager signal both processes. The crawl ends this one.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    _limit_memory(memory)
    while True:
        try:
            function, args, kwargs = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our process
        except EOFError:
            return
        _limit_time(seconds)  # after the import of the function, which does not count
        try:
            answer = _answer_call(function, args, kwargs)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # there may be no memory for an answer
        _limit_time(0)  # no limit until the next call
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


def _answer_call(function: Callable[..., Any], args: Any, kwargs: Any) -> bytes:  # noqa: ANN401
    """Return the result or the exception of a call, pickled. Raises MemoryError."""
    result: Any
    try:
        result = function(*args, **kwargs)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - raised again in the crawl
        result = error
    answer = pickle.dumps(result)
    if len(answer) > MAX_RESULT_BYTES:
        size = f"{MAX_RESULT_BYTES >> 20} MiB"
        return pickle.dumps(TooCostly(f"gives a result of more than {size}"))
    return answer


def _limit_memory(max_bytes: int) -> None:
    """Limit the memory of this process, where the system can."""
    if sys.platform == "win32":
        return
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes - _CODE_BYTES, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_time(seconds: float) -> None:
    """Limit the processor time of this process from now on, where the system can; 0 for no limit.

    RLIMIT_CPU counts whole seconds since the process began, and would give a call up to one second
    more.
    """
    if sys.platform != "win32":
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process
        signal.setitimer(signal.ITIMER_PROF, seconds)
