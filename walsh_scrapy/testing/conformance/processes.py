"""Runs a command, and ends all its processes, even daemons that left its session and parent.

    python processes.py DESCRIPTOR COMMAND...

This program runs between the test and the command, and imports nothing of the package. On Linux it
is the subreaper of the command's processes (see prctl): a daemon becomes its child, so it can be
ended with the command. On other systems only the process group of the command is ended.

SIGTERM is passed on to the command; SIGUSR1 kills the command. At the end a JSON object is written
to DESCRIPTOR: `status`, the exit status of the command (negative for a signal), and `daemons`, the
number of processes that it left running; or `error`, the reason why it could not be started.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
#: How often to look for processes, because those that still run may start others.
_ROUNDS: Final = 1000


def main(descriptor: int, command: list[str]) -> None:
    """Run the command, end all its processes, and write the report."""
    _become_subreaper()
    try:
        process = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - the caller's
    except OSError as error:
        report: dict[str, object] = {"error": error.strerror}
    else:
        signal.signal(signal.SIGTERM, lambda *_: _signal(process.pid, signal.SIGTERM))
        signal.signal(signal.SIGUSR1, lambda *_: _signal(process.pid, signal.SIGKILL))
        status = process.wait()
        _signal(process.pid, signal.SIGKILL)
        report = {"status": status, "daemons": _end_children(process.pid)}
    os.write(descriptor, json.dumps(report).encode())


def _become_subreaper() -> None:
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)  # sent if the parent is killed


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_children(group: int) -> int:
    """Kill all children; return how many of them had left the command's process group."""
    outside: set[int] = set()
    for _ in range(_ROUNDS):
        children = list(_children())
        if not children:
            break
        for child, state, its_group in children:
            if its_group != group and state != "Z":
                outside.add(child)
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    return len(outside)


def _children() -> Iterator[tuple[int, str, int]]:
    """Yield the pid, state and process group of each child (Linux only)."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, group = file.read_text("latin-1").rpartition(")")[2].split()[:3]
            if int(parent) == os.getpid():
                yield int(file.parent.name), state, int(group)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
