"""A TCP relay on loopback that can fall silent, end its connections or refuse new ones."""

import http.client
import socket
import ssl
import threading
from contextlib import suppress

from tests.helpers import HANG_SECONDS


class Relay:
    """Passes connections on to an address; as a context manager it ends with the block.

    Once `silence` was called it says nothing more, but takes connections: so does a server that is
    frozen. The answer that a client waits for is passed on before. `asked` is set when the relay
    then got the first bytes. After `refuse` it takes no further connection.
    """

    def __init__(self, host, port):
        self._to = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets, self._threads = [], []
        self._is_silent, self._is_over = threading.Event(), threading.Event()
        self._is_answered = threading.Event()
        self._is_answered.set()
        self.asked = threading.Event()
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        self._run(self._accept)
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self.refuse()
        self.end_connections()
        for thread in self._threads:
            thread.join()
        for sock in (self._listener, *self._sockets):
            sock.close()

    @property
    def connections(self):
        """How many connections it has taken."""
        return len(self._sockets) // 2

    def silence(self):
        assert self._is_answered.wait(HANG_SECONDS)
        self._is_silent.set()

    def end_connections(self):
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def refuse(self):
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def _run(self, *call):
        thread = threading.Thread(target=call[0], args=call[1:])
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                theirs = socket.create_connection(self._to)
                self._sockets += [ours, theirs]
                self._run(self._pass_on, ours, theirs, self._is_answered.clear)
                self._run(self._pass_on, theirs, ours, lambda: None, self._is_answered.set)

    def _pass_on(self, source, target, before, after=lambda: None):
        with suppress(OSError):
            while data := source.recv(65536):
                if self._is_silent.is_set():
                    self.asked.set()
                    self._is_over.wait()
                before()
                target.sendall(data)
                after()
            target.shutdown(socket.SHUT_WR)


# A client of a web without a proxy that knows where its hosts are, and asks no resolver.


class Client:
    """Opens connections to hosts, in TLS for https, and resumes sessions if it is told to."""

    def __init__(self, web):
        self.web = web
        self.context = ssl.create_default_context(cafile=web.environment.get("SSL_CERT_FILE"))

    def tcp(self, host, scheme="http", address=None):
        """Return a connected socket."""
        place = address or self.web.address(host), self.web.ports[scheme]
        return socket.create_connection(place, timeout=HANG_SECONDS)

    def open(self, host, scheme="http", address=None, session=None):
        """Return a connected socket, which speaks TLS if the scheme says so."""
        opened = self.tcp(host, scheme, address)
        if scheme == "http":
            return opened
        return self.context.wrap_socket(opened, server_hostname=host, session=session)

    def connection(self, host, scheme="http", **options):
        """Return an `http.client` connection, which may carry several requests."""
        connection = http.client.HTTPConnection(host, timeout=HANG_SECONDS)
        connection.sock = self.open(host, scheme, **options)
        connection.auto_open = 0
        return connection

    def get(self, host, path="/", scheme="http", asked=None, **options):
        """Return status and body of one request; `asked` is another Host."""
        connection = self.connection(host, scheme, **options)
        try:
            connection.request("GET", path, headers={"Host": asked or host})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def exchange(self, host, scheme="http", path="/"):
        """Return all bytes that answer one request, up to the end of the connection."""
        with self.open(host, scheme) as opened:
            opened.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            return b"".join(iter(lambda: opened.recv(1 << 16), b""))
