"""The listening sockets of a `DirectWeb`, and ports at which nobody answers."""

import socket
import struct
from contextlib import suppress
from typing import Final

#: `struct tcp_info` of a listening socket: how many connections wait in its queue.
_WAITING: Final = struct.Struct("=24xI")
_DEVICE: Final = b"lo"
_MOST_TO_FILL: Final = 8
_FILL_SECONDS: Final = 1.0


def bound(address: str, port: int = 0) -> socket.socket:
    """Return a socket that is bound, beside others at that port, for clients of this machine only.

    Raises OSError.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with suppress(PermissionError):  # since Linux 5.7 everybody may
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def without_answer(address: str, port: int) -> socket.socket:
    """Return a socket whose queue is full and stays so: the kernel drops every further SYN.

    A queue of length 0 holds one connection, which stays there when its client has closed it.
    """
    made = bound(address, port)
    made.listen(0)
    for _ in range(_MOST_TO_FILL):
        if _WAITING.unpack_from(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104))[0]:
            return made
        with socket.socket() as client, suppress(TimeoutError):
            client.settimeout(_FILL_SECONDS)
            client.connect((address, port))
    made.close()
    raise OSError(f"the queue of {address}:{port} does not fill")
