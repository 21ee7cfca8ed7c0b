"""A small pooler of PostgreSQL sessions in transaction mode, as PgBouncer is one.

It gives each transaction the session that was used least recently, so that none gets the session
of the one before it.
"""

import select
import socket
import struct
import threading
from collections import deque
from contextlib import suppress

from sqlalchemy import make_url

_PROTOCOL = 196_608  # 3.0
_ENCRYPTION = (80_877_103, 80_877_104)  # TLS and GSSAPI
#: The parameters of a connection that PgBouncer knows.
_KNOWN = {
    "application_name",
    "client_encoding",
    "database",
    "datestyle",
    "standard_conforming_strings",
    "timezone",
    "user",
}


def _message(kind, body=b""):
    return kind + struct.pack("!I", len(body) + 4) + body


def _startup(**parameters):
    pairs = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items())
    body = struct.pack("!I", _PROTOCOL) + pairs + b"\0"
    return struct.pack("!I", len(body) + 4) + body


class _Messages:
    """The messages of one end of a connection."""

    def __init__(self, end):
        self.end = end
        self._buffer = b""

    def receive(self):
        """Return the whole messages that have come; None at the end of the connection."""
        try:
            data = self.end.recv(65536)
        except OSError:
            data = b""
        if not data:
            return None
        self._buffer += data
        found = []
        while len(self._buffer) >= 5:
            size = 1 + struct.unpack("!I", self._buffer[1:5])[0]
            if len(self._buffer) < size:
                break
            found.append(self._buffer[:size])
            self._buffer = self._buffer[size:]
        return found


class Session(_Messages):
    """A session of the server."""

    def __init__(self, place, user, database):
        super().__init__(socket.create_connection(place))
        self.parameters = []  # as the server told them
        self.end.sendall(_startup(user=user, database=database, client_encoding="UTF8"))
        messages = []
        while not any(message[:1] == b"Z" for message in messages):
            messages = self.receive()
            self.parameters += [message for message in messages if message[:1] == b"S"]


class Pooler:
    """Passes transactions on to ``size`` sessions of a server; a context manager."""

    def __init__(self, url, size=4):
        server = make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        address = server.set(port=self._listener.getsockname()[1])
        self.direct_url = address.render_as_string(hide_password=False)  # without pooler=1
        self.url = f"{self.direct_url}?pooler=1"
        self._open = lambda: Session((server.host, server.port), server.username, server.database)
        self._idle = deque(self._open() for _ in range(size))
        self._changed = threading.Condition()
        self._threads, self._clients = [], []
        self.refused = []  # parameters of connections

    def __enter__(self):
        self._run(self._accept)
        return self

    def __exit__(self, *_):
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._clients, *(session.end for session in self._idle)):
            end.close()

    def _run(self, *call):
        thread = threading.Thread(target=call[0], args=call[1:])
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                self._run(self._serve, client)

    def _serve(self, client):
        with suppress(OSError):
            if self._greet(client):
                self._pass_on(client)
            client.shutdown(socket.SHUT_RDWR)

    def _greet(self, client):
        """Answer the beginning of a connection; return whether it may go on."""
        while True:
            start = client.recv(8, socket.MSG_WAITALL)
            if len(start) < 8:
                return False
            size, code = struct.unpack("!II", start)
            if code not in _ENCRYPTION:
                break
            client.sendall(b"N")
        body = client.recv(size - 8, socket.MSG_WAITALL)
        if code != _PROTOCOL:
            return False
        names = {name.decode() for name in body.split(b"\0")[:-2:2]}
        if unknown := names - _KNOWN:
            self.refused += sorted(unknown)
            text = f"unsupported startup parameter: {', '.join(sorted(unknown))}"
            fields = b"SFATAL\0C08P01\0M" + text.encode() + b"\0\0"
            client.sendall(_message(b"E", fields))
            return False
        session = self._take()
        told = b"".join(session.parameters)
        self._give_back(session)
        key = _message(b"K", struct.pack("!II", 1, 1))
        client.sendall(_message(b"R", struct.pack("!I", 0)) + told + key + _message(b"Z", b"I"))
        return True

    def _take(self):
        with self._changed:
            self._changed.wait_for(lambda: self._idle)
            return self._idle.popleft()

    def _give_back(self, session):
        with self._changed:
            self._idle.append(session)
            self._changed.notify()

    def _pass_on(self, client):
        """Pass messages on until the client ends; a session that is left in use is ended."""
        messages, session, answers = _Messages(client), None, 0
        while True:
            ends = [client] if session is None else [client, session.end]
            ready, _, _ = select.select(ends, [], [])
            if client in ready:
                asked = messages.receive()
                if asked is None or any(message[:1] == b"X" for message in asked):
                    break
                if asked and session is None:
                    session, answers = self._take(), 0
                answers += sum(message[:1] in (b"Q", b"S") for message in asked)
                if session is not None:
                    session.end.sendall(b"".join(asked))
            if session is not None and session.end in ready:
                answered = session.receive()
                if answered is None:
                    break
                client.sendall(b"".join(answered))
                states = [message[5:6] for message in answered if message[:1] == b"Z"]
                answers -= len(states)
                if states and states[-1] == b"I" and not answers:
                    self._give_back(session)
                    session = None
        if session is not None:
            session.end.close()
            self._give_back(self._open())
