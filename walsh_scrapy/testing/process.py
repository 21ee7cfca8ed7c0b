"""What starts a process for a test: `subprocess.Popen`, or what is called like it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

#: What Popen takes for a stream that is not a pipe: a file, a descriptor, DEVNULL or None.
Stream = IO[bytes] | int | None


class Process(Protocol):
    """A process that was started: what tests use of `subprocess.Popen`."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None until `poll` or `wait` saw the end."""

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raise subprocess.TimeoutExpired after `timeout` seconds."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def terminate(self) -> None:
        """Send SIGTERM."""


class Launcher(Protocol):
    """Starts a process. `subprocess.Popen` is one."""

    def __call__(
        self,
        command: Sequence[str],
        /,
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> Process:
        """Start `command` in the folder `cwd`, with the environment `env` and these streams."""
