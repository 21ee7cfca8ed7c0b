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

from walsh_scrapy.metadata.entries import NotAFeed

if sys.platform != "win32":
    import resource

#: Bytes of a result: the crawl has it in memory beside the process that made it.
MAX_RESULT_BYTES: Final = 16 * 1024 * 1024
_CODE: Final = 16 * 1024 * 1024  # bytes that are mapped from files; no limit counts them
#: It takes the seconds and the bytes of `Limits`.
PROGRAM: Final = "from walsh_scrapy.crawl.childprocess import answer_calls; answer_calls(%r, %r)"
#: The exit status of a process that has used up its memory.
OUT_OF_MEMORY: Final = 77


class TooCostly(NotAFeed):
    """A call has no result, because it cost too much; the message is a clause: "took longer …"."""


def answer_calls(seconds: float, memory: int) -> None:
    """Answer calls until the input ends, in the process that was started for that."""
    # A terminal and a service manager signal both processes: the crawl decides.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    _limit_memory(memory)
    while True:
        try:
            function, args, kwargs = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our process
        except EOFError:
            return
        _allow_time(seconds)  # from here on, so that imports take nothing from it
        try:
            answer = _answer(function, args, kwargs)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # there may be no memory for an answer
        _allow_time(0)  # no limit, so that the wait for the next call takes no time from it
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


def _answer(function: Callable[..., Any], args: Any, kwargs: Any) -> bytes:  # noqa: ANN401
    """Return the pickled result of a call, or its exception. Raises MemoryError."""
    result: Any
    try:
        result = function(*args, **kwargs)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - it is raised where the call was made
        result = error
    answer = pickle.dumps(result)
    if len(answer) > MAX_RESULT_BYTES:
        size = f"{MAX_RESULT_BYTES >> 20} MiB"
        return pickle.dumps(TooCostly(f"gives a result of more than {size}"))
    return answer


def _limit_memory(most: int) -> None:
    """Limit the memory of this process, where the system can."""
    if sys.platform == "win32":
        return
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most - _CODE, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _allow_time(seconds: float) -> None:
    """Let this process run for these seconds of processor time, where the system can limit that.

    A timer counts them exactly. RLIMIT_CPU counts whole seconds since the process began, and would
    give a call up to one second more.
    """
    if sys.platform != "win32":
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it ends the process
        signal.setitimer(signal.ITIMER_PROF, seconds)
