"""A TCP relay on loopback that can stop passing bytes on while its connections stay open."""

import socket
import threading
from contextlib import suppress


class Relay:
    """Passes connections on to an address; as a context manager it ends with the block.

    Once `silence` was called it takes bytes and connections, and says nothing more: so does a
    server that is frozen. `asked` is set when it then got something.
    """

    def __init__(self, host, port):
        self._to = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listener]
        self._is_silent = threading.Event()
        self.asked = threading.Event()
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def silence(self):
        self._is_silent.set()

    def _accept(self):
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                theirs = socket.create_connection(self._to)
                self._open += [ours, theirs]
                for pair in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source, target):
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._is_silent.is_set():
                    target.sendall(data)
                elif target.getpeername()[:2] == self._to:
                    self.asked.set()
            if not self._is_silent.is_set():
                target.shutdown(socket.SHUT_WR)
