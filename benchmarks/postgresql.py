"""A PostgreSQL server for one benchmark, which may stop, restart and end it."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString, Self

import psycopg

#: The users to run the server as if this process is root: PostgreSQL refuses to run as root.
USERS = ("postgres", "nobody")
START_SECONDS = 30.0


class Server:
    """A server in a temporary folder, at a free port of 127.0.0.1. As a context manager it runs.

    The server ends with this process, even if this process is killed.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="walsh-postgresql-")
        self._as: dict[str, Any] = {}
        if not os.getuid():
            user = next(user for user in pwd.getpwall() if user.pw_name in USERS)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self._folder.name, user.pw_uid, user.pw_gid)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        #: The URL of its database, for SQLAlchemy.
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        make = ["initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._call(*make, "-D", f"{self._folder.name}/data").wait()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGQUIT)
        self._folder.cleanup()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        place = ["-p", str(self._port), "-h", "127.0.0.1", "-k", self._folder.name]
        self._process = self._call(
            "postgres", "-D", f"{self._folder.name}/data", *place, "-c", "fsync=off"
        )
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(psycopg.OperationalError), self._connection():
                return
            time.sleep(0.05)
        raise SystemExit(Path(self._folder.name, "log").read_text())

    def end(self, how: signal.Signals) -> None:
        """End the server: fast with SIGINT, at once and without its last writes with SIGQUIT."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait()

    def cut(self) -> None:
        """End all connections of clients, as the restart of a proxy would."""
        condition = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        self.rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {condition}")

    def rows(self, query: LiteralString, *values: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._connection() as connection:
            return connection.execute(query, values).fetchall()

    @contextmanager
    def locked(self, table: LiteralString) -> Iterator[None]:
        """Lock a table, so that all its writers wait until the block ends."""
        with self._connection() as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
            yield

    @contextmanager
    def holding_commits(self) -> Iterator[None]:
        """Let each COMMIT wait until the block ends, as for a replica that does not answer."""
        with self._connection() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            connection.execute("SELECT pg_reload_conf()")
            yield
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")

    def waiting(self, event: str, statement: str) -> list[int]:
        """Return the client ports of connections that wait for an event while they run a statement.

        This blocks until a connection waits for the event (or type of event). ``statement`` is the
        beginning of the SQL.
        """
        activity = "FROM pg_stat_activity WHERE %s IN (wait_event_type, wait_event)"
        while not (rows := self.rows(f"SELECT client_port, query {activity}", event)):
            time.sleep(0.02)
        return [port for port, text in rows if text.startswith(statement)]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all processes of the server (SIGSTOP) until the block ends."""
        assert self._process
        parent = self._process.pid
        os.kill(parent, signal.SIGSTOP)  # first, so that it starts no more processes
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        pids = [*map(int, children), parent]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        go_on = ["sh", "-c", 'read -r _; kill -CONT "$@"', "sh", *map(str, pids)]
        # A separate process, so that the server goes on even if this process is killed.
        with subprocess.Popen(go_on, stdin=subprocess.PIPE):
            yield

    def _connection(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url.replace("+psycopg", ""), connect_timeout=5, autocommit=True)

    def _call(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with Path(self._folder.name, "log").open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "QUIT", _program(program), *arguments],
                stdout=log,
                stderr=log,
                cwd="/",
                **self._as,
            )


def _program(name: str) -> str:
    """Return the path of a program, which is in PATH or where Debian installs it."""
    places = [os.environ["PATH"], *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    if path := shutil.which(name, path=os.pathsep.join(places)):
        return path
    raise SystemExit(f"there is no {name}: install the server of PostgreSQL")
