"""Leads a Python process to a `DirectWeb`. Python imports `sitecustomize` at its start.

`DirectWeb.environment` puts this folder into PYTHONPATH, and the web's ports into a variable. Names
are then looked up by the web's DNS server, and connections to ports 80 and 443 of loopback
addresses go to the ports at which the web listens.

The module imports little, because it runs before everything else. It replaces functions of
`_socket`, which the functions of `socket` call: other modules may have imported the latter.
"""

from __future__ import annotations

import _socket
import os
import socket

# The ports of the web: its DNS server, http and https, then http and https of `::1`.
_RESOLVER, *_LISTENING = map(int, os.environ.get("WALSH_DIRECT_WEB", "0 0 0 0 0").split())
_IPV4 = dict(zip((80, 443), _LISTENING[:2], strict=True))
_IPV6 = dict(zip((80, 443), _LISTENING[2:], strict=True))
#: Seconds. A later answer will never come, because the process of the test has ended.
_ANSWER_TIMEOUT_SECONDS = 300.0
_ANSWER_BYTES = 1 << 16
_MESSAGES = {
    socket.EAI_AGAIN: "Temporary failure in name resolution",
    socket.EAI_NODATA: "No address associated with hostname",
    socket.EAI_NONAME: "Name or service not known",
}

_getaddrinfo = _socket.getaddrinfo
_connect = socket.socket.connect
_connect_ex = socket.socket.connect_ex


def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):  # type: ignore[no-untyped-def] # noqa: A002, ANN001, ANN201
    """Replace `_socket.getaddrinfo`, with the names and ports of the web."""
    numeric = flags | socket.AI_NUMERICHOST
    try:
        infos = _getaddrinfo(host, port, family, type, proto, numeric)
    except socket.gaierror as error:
        if error.errno != socket.EAI_NONAME or flags & socket.AI_NUMERICHOST:
            raise
    else:
        return [(*info[:4], _mapped(info[4])) for info in infos]
    name = host if isinstance(host, bytes) else host.encode("idna")
    numbered = _getaddrinfo("127.0.0.1", port, socket.AF_INET, type, proto, socket.AI_NUMERICHOST)
    results = []
    for address, listens in _ask(name.decode(), int(numbered[0][4][1])):
        if family in (0, socket.AF_INET6 if ":" in address else socket.AF_INET):
            results += _getaddrinfo(address, listens, family, type, proto, numeric)
    if not results:
        raise _error(socket.EAI_NODATA)
    return results


def gethostbyname_ex(host: str) -> tuple[str, list[str], list[str]]:
    """Replace the function of `socket`, with the names of the web."""
    infos = getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)  # type: ignore[no-untyped-call]
    return host, [], [info[4][0] for info in infos]


def gethostbyname(host: str) -> str:
    """Replace the function of `socket`, with the names of the web."""
    return gethostbyname_ex(host)[2][0]


def connect(self: socket.socket, address: object) -> None:
    """Connect to the port at which the web listens."""
    _connect(self, _mapped(address))  # type: ignore[arg-type]


def connect_ex(self: socket.socket, address: object) -> int:
    """Connect to the port at which the web listens."""
    return _connect_ex(self, _mapped(address))  # type: ignore[arg-type]


def _mapped(address: object) -> object:
    """Return a socket address with the port at which the web listens."""
    match address:
        case (str(host), int(port), *rest) if host.startswith(("127.", "::ffff:127.")):
            return (host, _IPV4.get(port, port), *rest)
        case ("::1", int(port), *rest):
            return ("::1", _IPV6.get(port, port), *rest)
    return address


def _ask(name: str, port: int) -> list[tuple[str, int]]:
    """Return the addresses and ports of a name. Raises socket.gaierror."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(_ANSWER_TIMEOUT_SECONDS)
            _connect(client, ("127.0.0.1", _RESOLVER))
            client.send(f"{port} {name}".encode())
            error, *lines = client.recv(_ANSWER_BYTES).decode().split("\n")
    except OSError:  # the web has gone, or this process has no free descriptor
        raise _error(socket.EAI_AGAIN) from None
    if code := int(error):
        raise _error(code)
    pairs = (line.rpartition(" ") for line in lines)
    return [(address, int(listens)) for address, _, listens in pairs]


def _error(code: int) -> socket.gaierror:
    return socket.gaierror(code, _MESSAGES.get(code, f"error {code}"))


_REPLACED = (
    (_socket, getaddrinfo),
    (_socket, gethostbyname),
    (_socket, gethostbyname_ex),
    (socket, gethostbyname),
    (socket, gethostbyname_ex),
    (socket.socket, connect),
    (socket.socket, connect_ex),
)
if _RESOLVER:
    for place, function in _REPLACED:
        setattr(place, function.__name__, function)
