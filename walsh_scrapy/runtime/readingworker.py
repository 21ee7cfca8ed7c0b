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
        _allow_time()
        send(sys.stdout.buffer, pickle.dumps(_result(pickle.loads(message))))  # noqa: S301 - ours


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
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _allow_time() -> None:
    """Let this process have `CPU_SECONDS` from now on, where the system can limit that."""
    if sys.platform == "win32":
        return
    with suppress(OSError, ValueError):
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = int(used.ru_utime + used.ru_stime) + 1 + CPU_SECONDS
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (until, hard))


if __name__ == "__main__":
    main()
