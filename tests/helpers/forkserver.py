"""A process that has imported Scrapy, and forks a child for each command.

    with ForkServer() as launch:
        child = launch([sys.executable, "-m", "scrapy", "version"], cwd=folder, env=os.environ)
        assert child.wait() == 0

`python -m scrapy` needs most of a second to import Scrapy; a child of the fork server has it
already. The children are ordinary processes, with their own working directory, environment,
streams, sockets, signals and exit status. Only `[sys.executable, "-m", MODULE, ...]` and
`[sys.executable, "-c", PROGRAM, ...]` are forked. Any other command is started by
`subprocess.Popen`, and so is a command whose environment has variables that an interpreter reads
only at its start.

Other processes may share its imports: `ForkServer(launch.address)`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from walsh_scrapy.testing.crawl import Process

__all__ = ["ForkServer"]

#: What Popen takes for a stream that is not a pipe: a file, a descriptor, DEVNULL or None.
Stream = IO[bytes] | int | None

#: The folder of the project, which the server has to import; its children may not find it.
_HOME: Final = Path(__file__).resolve().parents[2]
_SIZE: Final = struct.Struct("!I")
_EXIT: Final = struct.Struct("!i")
_MODULE: Final = "tests.helpers.forked"
#: Read by each interpreter as it starts, but settable in a child too.
_SETTABLE: Final = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONIOENCODING"}


class ForkServer:
    """Starts commands; the process that forks them imports Scrapy at the first one.

    It is the process of the ForkServer with the ``address`` that is given, or else a new one. It is
    called as `subprocess.Popen` is, but without pipes. Several threads may call it.
    """

    def __init__(self, address: str | None = None) -> None:
        self._environment = dict(os.environ)
        self._environment.pop("PYTHONIOENCODING", None)
        self._control: socket.socket | None = None
        self._one_at_a_time = threading.Lock()
        self._open = ExitStack()
        self.address = address or self._serve()

    def _serve(self) -> str:
        """Start the process, and return the path of its socket, which only this user may use."""
        address = f"{self._open.enter_context(TemporaryDirectory())}/forkserver"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            server = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(listener.fileno())],
                cwd=_HOME,
                env=self._environment,
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
            )
        self._open.enter_context(server)  # its end closes stdin, where the server waits for that
        return address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every child that still runs, and the process unless it is that of another."""
        if self._control is not None:
            self._control.close()
        self._open.close()
        self._control = None

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
        """Start a command and return at once."""
        if not self._can_fork(command, env):
            return subprocess.Popen(
                command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr
            )
        request = {"arguments": list(command[1:]), "cwd": str(cwd), "environment": dict(env)}
        with Path(os.devnull).open("r+b") as nowhere:
            given = [
                nowhere.fileno() if stream == subprocess.DEVNULL else _descriptor(stream, standard)
                for standard, stream in enumerate((stdin, stdout, stderr))
            ]
            if stderr == subprocess.STDOUT:
                given[2] = given[1]
            return self._fork(list(command), json.dumps(request).encode(), given)

    def _can_fork(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        if command[0] != sys.executable or command[1] not in ("-m", "-c"):
            return False
        return _read_at_start(environment) == _read_at_start(self._environment)

    def _fork(self, command: list[str], request: bytes, streams: list[int]) -> Process:
        ours, theirs = socket.socketpair()
        with theirs, self._one_at_a_time:
            control = self._connected()
            socket.send_fds(control, [_SIZE.pack(len(request))], [theirs.fileno(), *streams])
            control.sendall(request)
        return _Child(command, ours)

    def _connected(self) -> socket.socket:
        if self._control is None:
            self._control = socket.socket(socket.AF_UNIX)
            self._control.connect(self.address)
        return self._control


class _Child:
    """A child of the server, in the manner of `subprocess.Popen`."""

    def __init__(self, command: list[str], channel: socket.socket) -> None:
        self.args = command
        self.returncode: int | None = None
        self._channel = channel
        self.pid = self._number()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._channel, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = self._number()
            self._channel.close()
        return self.returncode

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _number(self) -> int:
        """Receive a number that the server sends: the process id first, at the end the status."""
        message = self._channel.recv(_EXIT.size, socket.MSG_WAITALL)
        if len(message) < _EXIT.size:
            raise ConnectionError("the fork server has ended")
        number: int = _EXIT.unpack(message)[0]
        return number


def _descriptor(stream: IO[bytes] | int | None, standard: int) -> int:
    if stream is None:
        return standard
    return stream if isinstance(stream, int) else stream.fileno()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the environment variables that an interpreter reads only at its start."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LC_", "LANG", "LD_")) and name not in _SETTABLE
    }
