"""A forward proxy in front of a web, which answers as Squid does where it reaches no host."""

import re
import socket
import threading
from contextlib import suppress

#: What Squid adds to an answer of its own. A host that cannot be reached is a 503, one that does
#: not answer in time a 504.
OWN = {"Server": "squid/6.13", "X-Squid-Error": "ERR_CONNECT_FAIL 101", "Via": "1.1 gate (squid)"}
_AUTHORITY = re.compile(rb"\w+ (?:http://)?([^/ :]+)")


def _with_close(head):
    """The head of a message with the field that ends its connection."""
    return head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


class Squid:
    """Passes requests on to a `LoopbackWeb`; as a context manager it ends with the block.

    It reaches no host in ``dead``, and none at all while ``is_down``. To a request for such a host,
    and to CONNECT, it answers ``status`` with the header fields ``own``.
    """

    def __init__(self, web, *, dead=(), is_down=False, status=503, own=OWN):
        self.dead, self.is_down, self.status, self.own = dead, is_down, status, own
        self.asked = []  #: the hosts of the requests that it answered itself
        self._web = web
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets, self._threads = [], []

    @property
    def environment(self):
        """The environment of a user of this proxy."""
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        return {"http_proxy": url, "https_proxy": url}

    def __enter__(self):
        self._run(self._accept)
        return self

    def __exit__(self, *_):
        for opened in (self._listener, *self._sockets):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for opened in (self._listener, *self._sockets):
            opened.close()

    def _run(self, *call):
        thread = threading.Thread(target=call[0], args=call[1:], daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                self._run(self._serve, client)

    def _serve(self, client):
        """Answer the one request of a connection, or let it become a tunnel."""
        with suppress(OSError):
            if head := client.recv(65_536):
                host = _AUTHORITY.match(head)[1].decode()
                if self.is_down or host in self.dead:
                    self.asked.append(host)
                    client.sendall(self._own_answer())
                    client.shutdown(socket.SHUT_RDWR)
                    return
                server = socket.create_connection(("127.0.0.1", self._web.port))
                self._sockets.append(server)
                server.sendall(_with_close(head))
                if head.startswith(b"CONNECT"):
                    self._run(self._pass_on, client, server)
                else:
                    client.sendall(_with_close(server.recv(65_536)))
                self._pass_on(server, client)

    def _pass_on(self, source, target):
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def _own_answer(self):
        fields = {"Content-Length": "0", "Connection": "close"} | self.own
        lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
        return f"HTTP/1.1 {self.status} Trouble\r\n{''.join(lines)}\r\n".encode()
