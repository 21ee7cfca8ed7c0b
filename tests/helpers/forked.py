"""The process that `tests.helpers.forkserver` starts: it imports, waits and forks.

    python -m tests.helpers.forked DESCRIPTOR

The descriptor is that of a socket, to which others connect. The server ends at the end of its
standard input. What a connection started ends with it.

A request comes in at a connection: a size, four descriptors with it (the child's channel and its
standard streams), then so many bytes of JSON. The server forks. It writes the child's process id to
the channel, and the exit status when the child has ended. In the child the loop returns. The child
ends with the status of an interpreter: `atexit` functions run, and the streams are flushed.
"""

import atexit
import codecs
import gc
import io
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from pkgutil import walk_packages
from select import select
from types import ModuleType
from typing import Any, Final, NoReturn, TextIO, TypedDict

#: What a crawl imports, except Twisted's reactor, which cannot be used after a fork, and the
#: settings and spiders of a project, which each child imports itself.
_PACKAGES: Final = (
    "scrapy.commands", "scrapy.downloadermiddlewares", "scrapy.spidermiddlewares", "walsh_scrapy",
)  # fmt: skip
_MODULES: Final = (
    "encodings.idna", "encodings.utf_8_sig", "psycopg", "scrapy.cmdline", "scrapy.contracts",
    "scrapy.core.downloader.handlers.http11", "scrapy.core.engine", "scrapy.core.scheduler",
    "scrapy.core.scraper", "scrapy.dupefilters", "scrapy.extensions.closespider",
    "scrapy.extensions.corestats", "scrapy.extensions.feedexport", "scrapy.extensions.logcount",
    "scrapy.extensions.logstats", "scrapy.extensions.memdebug", "scrapy.extensions.memusage",
    "scrapy.extensions.spiderstate", "scrapy.extensions.throttle", "scrapy.statscollectors",
    "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite", "unittest",
    "xml.sax.expatreader",
)  # fmt: skip
_NOT_WARM: Final = ("walsh_scrapy.__main__", "walsh_scrapy.settings", "walsh_scrapy.testing")
_SIZE: Final = struct.Struct("!I")
_NUMBER: Final = struct.Struct("!i")
_DESCRIPTORS: Final = 4
_STREAMS: Final = ("stdin", "stdout", "stderr")
#: The standard input of the server.
_ENDS: Final = 0


class Request(TypedDict):
    """What a child has to run: Python with these arguments (`-m` or `-c`), folder, environment."""

    arguments: list[str]
    cwd: str
    environment: dict[str, str]


def main(listener: socket.socket) -> None:
    """Serve until the end of standard input; in a child, run its request."""
    path = _own_path()
    if listener not in select([listener, _ENDS], [], [])[0]:
        return  # nothing was ever asked for
    _import_what_a_crawl_imports()
    gc.collect()
    gc.freeze()  # so that the garbage collector of a child copies no memory of this process
    if request := _Server(listener).serve():
        _end(_status_of(lambda: _run(request, path)))


class _Server:
    """The loop that forks children, and reaps them."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        #: By child: where its status is reported, and the connection that asked for it.
        self._children: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        for channel in (listener, self._woken, _ENDS):
            self._selector.register(channel, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> Request | None:
        """Fork for each request; return it in the child, and None in the server at its end."""
        while True:
            for key, _ in self._selector.select():
                if key.fd == _ENDS:
                    self._end(*(connection for _, connection in self._children.values()))
                    return None
                if key.fileobj is self._woken:
                    self._reap()
                elif key.fileobj is self._listener:
                    self._selector.register(self._listener.accept()[0], selectors.EVENT_READ)
                elif message := _receive(key.fileobj):
                    request, descriptors = message
                    if not self._fork(key.fileobj, descriptors):
                        return request
                else:
                    self._selector.unregister(key.fileobj)
                    self._end(key.fileobj)
                    key.fileobj.close()

    def _fork(self, connection: socket.socket, descriptors: list[int]) -> int:
        """Fork; in the child, close everything of the server except the standard streams."""
        channel = socket.socket(fileno=descriptors[0])
        process = os.fork()
        if process:
            for stream in descriptors[1:]:
                os.close(stream)
            self._children[process] = channel, connection
            channel.sendall(_NUMBER.pack(process))
            return process
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connections = [key.fileobj for key in self._selector.get_map().values() if key.fd != _ENDS]
        self._selector.close()
        channels = [other for other, _ in self._children.values()]
        for open_end in (*connections, self._wakes, channel, *channels):
            open_end.close()
        for standard, stream in enumerate(descriptors[1:]):
            os.dup2(stream, standard)
            os.close(stream)
        return 0

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(64):
                pass
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._report(*ended)

    def _report(self, process: int, status: int) -> None:
        channel, _ = self._children.pop(process)
        with channel, suppress(BrokenPipeError):
            channel.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))

    def _end(self, *connections: socket.socket) -> None:
        for process, (_, connection) in list(self._children.items()):
            if connection in connections:
                os.kill(process, signal.SIGKILL)
                self._report(*os.waitpid(process, 0))


def _receive(connection: socket.socket) -> tuple[Request, list[int]] | None:
    """Return a request and its descriptors, or None at the end of the connection."""
    size, descriptors, _, _ = socket.recv_fds(connection, _SIZE.size, _DESCRIPTORS)
    if not size:
        return None
    (length,) = _SIZE.unpack(size)
    request: Request = json.loads(connection.recv(length, socket.MSG_WAITALL))
    return request, descriptors


def _import_what_a_crawl_imports() -> None:
    for package in _PACKAGES:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.startswith(_NOT_WARM):
                import_module(module.name)
    for name in _MODULES:
        with suppress(ImportError):  # psycopg is not always there
            import_module(name)


def _own_path() -> list[str]:
    """Return the `sys.path` of this environment, without what PYTHONPATH adds to it."""
    given = {os.path.abspath(folder) for folder in _python_path(os.environ)}  # noqa: PTH100
    return [folder for folder in sys.path[1:] if folder not in given]


def _python_path(environment: Mapping[str, str]) -> list[str]:
    return [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]


def _run(request: Request, path: list[str]) -> None:
    """Become `python -m MODULE ...` or `python -c PROGRAM ...`."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    _open_streams()
    sys.path[:] = [str(Path.cwd()), *_python_path(os.environ), *path]
    sys.path_importer_cache.clear()
    _customize()
    option, program, *arguments = request["arguments"]
    if arguments[:1] == ["crawl"]:
        subprocess.Popen = Interpreter().popen  # type: ignore[assignment,misc]
    if option == "-m":
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [option, *arguments]
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), vars(sys.modules["__main__"]))


class Interpreter:
    """A process that runs a program as `python -P -c` does, but was forked, with all its imports.

    A crawl reads documents in a process that it starts by `subprocess`, and imports take most of
    that one's time. This is forked before the crawl has threads, and ends with the crawl unless it
    is asked for. It is like a `subprocess.Popen` with pipes.
    """

    def __init__(self) -> None:
        self.args: list[str] = []
        self.returncode: int | None = None
        self.is_free = True
        asked, self._asks = os.pipe()
        question, stdin = os.pipe()
        stdout, answer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            for descriptor in (self._asks, stdin, stdout):
                os.close(descriptor)
            _end(_status_of(lambda: _interpret(asked, question, answer)))
        for descriptor in (asked, question, answer):
            os.close(descriptor)
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self._start = subprocess.Popen

    def popen(self, command: Any, *arguments: Any, **options: Any) -> Any:
        """Start a process: this one for the first program, others by `subprocess`."""
        is_program = isinstance(command, list) and command[:3] == [sys.executable, "-P", "-c"]
        if not (is_program and self.is_free):
            return self._start(command, *arguments, **options)
        self.args, self.is_free = command, False
        os.write(self._asks, command[3].encode())
        os.close(self._asks)
        return self

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        return self._wait(0)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None and (ended := os.waitpid(self.pid, options))[0]:
            self.returncode = os.waitstatus_to_exitcode(ended[1])
        return self.returncode


def _interpret(asked: int, question: int, answer: int) -> None:
    """Run the program that comes, if one does."""
    program = os.read(asked, 65_536)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for standard, descriptor in enumerate((question, answer, nowhere)):
        os.dup2(descriptor, standard)
    _open_streams()
    known = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    limit = resource.setrlimit

    def limit_what_is_new(kind: int, limits: tuple[int, int]) -> None:
        """Set a limit; this process has imported far more than one that was started."""
        has_more = kind == resource.RLIMIT_DATA and limits[0] != resource.RLIM_INFINITY
        limit(kind, (limits[0] + known * has_more, limits[1]))

    resource.setrlimit = limit_what_is_new
    exec(program, {"__name__": "__main__"})


def _status_of(run: Callable[[], None]) -> int:
    """Return the exit status with which an interpreter would end that runs this."""
    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception:  # noqa: BLE001 - an interpreter reports whatever it is
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """End as the processes of `multiprocessing` do: threads, `atexit`, streams, and no more.

    An interpreter would also take apart all its modules. That costs a third of a short crawl here,
    since each page of memory of the server that changes is copied first.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what was never awaited or closed says so
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)  # as an interpreter does, with what it says of such streams
    os._exit(status & 0xFF)


def _customize() -> None:
    """Import `sitecustomize` from PYTHONPATH, as an interpreter does at its start."""
    if PathFinder.find_spec("sitecustomize", _python_path(os.environ)):
        sys.modules.pop("sitecustomize", None)
        import_module("sitecustomize")


def _open_streams() -> None:
    """Open the standard streams as an interpreter does, by what the environment says of them."""
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    for descriptor, name in enumerate(_STREAMS):
        usual: TextIO = getattr(sys, name)  # of the server, which has the defaults
        raw = io.FileIO(descriptor, "r" if name == "stdin" else "w", closefd=False)
        text = io.TextIOWrapper(
            io.BufferedReader(raw) if name == "stdin" else io.BufferedWriter(raw),
            codecs.lookup(encoding or usual.encoding).name,
            (errors or "strict") if encoding and name != "stderr" else usual.errors,
            line_buffering=raw.isatty() or name == "stderr",
            write_through=bool(os.environ.get("PYTHONUNBUFFERED")) and name != "stdin",
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
