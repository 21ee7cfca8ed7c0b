"""Failed connections to a host: a sentence, and the blame (decisions 28, 29).

Errors of TLS name the host and its problem (decision 22).
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
)

from walsh_scrapy.exceptions import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

#: "either" fits a host without an address, and a machine without a network.
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

    is_of_origin = True


class NoConnection(Unreachable, DownloadFailedError):
    """No connection to a host is possible for another reason, such as an ICMP message."""

    is_of_origin = True


class NotConnected(Exception):
    """No connection was made. Middlewares and errbacks get ``failure`` if it is the host's."""

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

    ``step`` is the attempt: a connection, or a step after it.
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
    """Return the meaning of an error, which the text of a failed attempt to connect lacks."""
    return ", ".join(map(os.strerror, sorted(_numbers(error)))) or str(error)


Fault = Literal["host", "unknown", "machine"]

#: So many hosts in a row, and nothing that worked before: it is this machine.
ENOUGH_HOSTS: Final = 5


class Connectivity:
    """The evidence of one process.

    It decides on failures that may be either: a name server that gives no answer, a network that is
    unreachable or down, an address that cannot be assigned.
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


# ---- TLS ----

_UNTRUSTED: Final = "is signed by somebody whom this machine does not trust"
#: By OpenSSL's numbers of verification errors (X509_V_ERR): the problem, to follow "the certificate
#: of HOST".
_FLAWS: Final = {
    2: _UNTRUSTED,
    9: "is not valid yet",
    10: "has expired",
    18: "is self-signed, and this machine does not trust it",
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    62: "is for another host",
    64: "is for another host",
}


class NoHandshake(Unreachable, DownloadFailedError):
    """A host answers, but TLS with it is not possible: another try would not help (decision 28)."""

    is_of_origin = True


class BadCertificate(NoHandshake, IgnoreRequest):
    """The certificate of a host is not valid (decision 22), so no request is sent to it.

    ``flaw`` completes the sentence "the certificate of ``host`` ...". Scrapy logs no traceback for
    an IgnoreRequest.
    """

    def __init__(self, host: str, flaw: str) -> None:
        super().__init__(host, f"TLS: the certificate of {host} {flaw}")


class NoSecureConnection(NoHandshake):
    """A TLS handshake failed for a reason other than the certificate."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(host, f"TLS: no secure connection with {host}: {reason}")


def no_handshake(error: ssl.SSLError, host: str) -> NoHandshake:
    """Return the exception for an error of OpenSSL at a host."""
    if isinstance(error, ssl.SSLCertVerificationError):
        told = error.verify_message.removesuffix(".")
        return BadCertificate(host, _FLAWS.get(error.verify_code, f"is not valid ({told})"))
    reason = getattr(error, "reason", None) or str(error)  # the first has no spaces
    return NoSecureConnection(host, reason.replace("_", " ").lower())


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, the original one last.

    Some errors of Twisted have several causes, in a list.
    """
    if error is None:
        return
    yield error
    for failure in getattr(error, "reasons", ()):
        yield from causes(failure.value)
    yield from causes(error.__cause__)
