"""Why no connection was made, and whose trouble that is (decisions 28 and 29)."""

from __future__ import annotations

import errno
import os
import re
import socket
from typing import Final, Literal, TypeAlias

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
)

from walsh_scrapy.exceptions import Unreachable

#: "either" is what a host without an address and a machine without a network have in common.
Blame: TypeAlias = Literal["host", "machine", "either"]

#: This machine has not enough of something, whatever host was to be reached.
_MACHINE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC})
#: This machine has no network, or none of the kind that the host needs.
_NO_NETWORK: Final = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL})
#: A firewall refuses, ours or (over IPv6) the host's.
_FORBIDDEN: Final = frozenset({errno.EPERM, errno.EACCES})

_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")


class NoAddress(Unreachable, CannotResolveHostError):
    """The name of a host has no address, or none was found in time."""


class NoAnswer(Unreachable, DownloadTimeoutError):
    """A host took no connection in time."""


class ConnectionRefused(Unreachable, DownloadConnectionRefusedError):
    """A host refused the connection."""


class NoConnection(Unreachable, DownloadFailedError):
    """No connection to a host is possible for another reason, such as an ICMP message."""


class NotConnected(Exception):
    """No connection was made. ``failure`` is what gates and errbacks get if it is the host's."""

    def __init__(self, failure: Exception, blame: Blame) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.blame = blame


def name_not_found(host: str, error: OSError | UnicodeError) -> NotConnected:
    """Return why a name was not found: ``error`` is that of the lookup, or of its time limit."""
    match error:
        case TimeoutError() | socket.gaierror(errno=socket.EAI_AGAIN):
            return NotConnected(NoAddress(host, f"the DNS did not answer for {host}"), "either")
        case socket.gaierror() | UnicodeError():
            return NotConnected(NoAddress(host, f"the DNS has no address for {host}"), "host")
    reason = f"the name {host} cannot be looked up: {error.strerror or error}"
    return NotConnected(NoAddress(host, reason), "machine")


def not_connected(
    host: str, error: OSError, limit: float, step: str = "a connection"
) -> NotConnected:
    """Return why a host was not connected to; ``limit`` is the time limit in seconds.

    ``step`` is what was tried: a connection, or what came after it.
    """
    numbers = _numbers(error)
    if not numbers and isinstance(error, TimeoutError):
        failure: Unreachable = NoAnswer(host, f"{host} did not answer {step} in {limit:g} s")
    elif numbers == {errno.ECONNREFUSED}:
        failure = ConnectionRefused(host, f"{host} refused the connection")
    else:
        failure = NoConnection(host, f"no connection to {host}: {_text(error)}")
    return NotConnected(failure, _blame(numbers))


def without_proxy(proxy: str, found: NotConnected) -> NotConnected:
    """Return a failed connection to a proxy: without it no host can be reached."""
    return NotConnected(DownloadFailedError(f"the proxy {proxy}: {found}"), "machine")


def _blame(numbers: set[int]) -> Blame:
    if numbers & _MACHINE:
        return "machine"
    return "either" if numbers and numbers <= _NO_NETWORK | _FORBIDDEN else "host"


def _numbers(error: OSError) -> set[int]:
    """Return the numbers of an error; those of several attempts are only in the text."""
    if error.errno is not None:
        return {error.errno}
    return set(map(int, _NUMBER.findall(str(error))))


def _text(error: OSError) -> str:
    """Return what an error means. The text of a failed attempt to connect does not say it."""
    return ", ".join(map(os.strerror, sorted(_numbers(error)))) or str(error)


Fault = Literal["host", "unknown", "machine"]

#: So many hosts in a row, and nothing that worked before: it is this machine.
ENOUGH_HOSTS: Final = 5


class Connectivity:
    """The evidence of one process.

    It is asked about failures that may be either: a name server that gives no answer, a network
    that is unreachable or down, an address that cannot be assigned.
    """

    def __init__(self) -> None:
        self._is_proven = False
        self._failed: set[str] = set()

    def record_success(self) -> None:
        """Record that a connection was made, or that the network resolved a name."""
        self._is_proven = True

    def fault_of(self, host: str) -> Fault:
        """Return whose failure this is.

        Once anything has worked it is the host's. Before that it is unknown for the first four
        hosts; with the fifth it is this machine's.
        """
        if self._is_proven:
            return "host"
        self._failed.add(host)
        return "machine" if len(self._failed) >= ENOUGH_HOSTS else "unknown"

    @property
    def offline(self) -> bool:
        """Whether nothing has worked, and something failed that may be this machine's failure."""
        return bool(self._failed) and not self._is_proven
