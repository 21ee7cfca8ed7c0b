"""Runs a command, and ends its processes: those that left its session and lost their parent too.

    python processes.py DESCRIPTOR COMMAND...

This is a separate process between a trial and the command, and imports nothing of the package. It
is the subreaper of the command's processes (Linux: prctl): a daemon becomes its child, and is ended
when the command is. Elsewhere only the process group of the command is. On SIGTERM it passes that
on to the command, on SIGUSR1 it kills the command. When everything has ended, it writes an object
of JSON to DESCRIPTOR: `status`, the exit status of the command (negative: the signal), and
`daemons`, the number of other processes; or `error`, why it could not be started.
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
#: Times that processes which go on to start others are looked for.
_ROUNDS: Final = 1000


def main(descriptor: int, command: list[str]) -> None:
    """Run the command, end the rest, and write the report."""
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
        prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)  # if the trial is killed


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_children(group: int) -> int:
    """Kill our children until there are none; return the number outside of the command's group."""
    left = set[int]()
    for _ in range(_ROUNDS):
        children = list(_children())
        if not children:
            break
        for child, state, its_group in children:
            if its_group != group and state != "Z":
                left.add(child)
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    return len(left)


def _children() -> Iterator[tuple[int, str, int]]:
    """Yield our children with their state and process group, from the files of Linux."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, group = file.read_text("latin-1").rpartition(")")[2].split()[:3]
            if int(parent) == os.getpid():
                yield int(file.parent.name), state, int(group)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
