"""The process that reads costly documents, one after the other, within limits (decision 34).

    python -m walsh_scrapy.runtime.readingworker

It takes pickled documents from its input and writes pickled results to its output, each after its
length. It ends with its input. The system ends it when a document takes more than `CPU_SECONDS`.
"""

import pickle
import signal
import struct
import sys
from contextlib import suppress
from importlib import import_module
from typing import BinaryIO, Final

from walsh_scrapy.metadata.document import Document
from walsh_scrapy.metadata.entries import Feed, NotAFeed

if sys.platform != "win32":
    import resource

CPU_SECONDS: Final = 5  #: of processor time, for one document
MEMORY: Final = 200 * 1024 * 1024  #: bytes, of which the process itself needs a fifth
_CODE: Final = 16 * 1024 * 1024  #: bytes of it that are mapped from files; no limit counts them
_LENGTH: Final = struct.Struct("!Q")


def main() -> None:
    """Read documents until the input ends."""
    # A terminal and a service manager signal both processes: the crawl decides what follows.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    for readers in ("feeds", "llms"):
        import_module(f"walsh_scrapy.metadata.{readers}")
    _limit_memory()
    while (message := receive(sys.stdin.buffer)) is not None:
        _allow_time(CPU_SECONDS)
        answer = pickle.dumps(_result(pickle.loads(message)))  # noqa: S301 - ours
        _allow_time(0)  # no limit, so that the wait for the next document takes no time from it
        send(sys.stdout.buffer, answer)


def send(stream: BinaryIO, message: bytes) -> None:
    """Write a message."""
    stream.write(_LENGTH.pack(len(message)))
    stream.write(message)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """Return the next message; None if the stream has ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = stream.read(length)
    return message if len(message) == length else None


def _result(document: Document) -> Feed | NotAFeed:
    try:
        return document.read()
    except NotAFeed as error:
        return error
    except MemoryError:
        mebibytes = MEMORY // 1024 // 1024
        return NotAFeed(f"Reading {document.url} needs more than {mebibytes} MiB of memory.")


def _limit_memory() -> None:
    """Limit the memory of this process, where the system can."""
    if sys.platform == "win32":
        return
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY - _CODE, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _allow_time(seconds: float) -> None:
    """Let this process run for so many seconds of processor time, where the system can limit that.

    A timer counts them exactly. RLIMIT_CPU counts whole seconds since the process began, and would
    give a document up to a second more.
    """
    if sys.platform != "win32":
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it ends the process
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    main()
