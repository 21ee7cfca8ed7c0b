"""Where connections lead, and what their failures say.

That is the addresses of a name, the endpoint of a URL, and proxies; and exceptions for failed
connections, with a message for the operator, and who is to blame. A host that does not answer is
deferred (decision 28), but only if the failure cannot be this machine's own, such as a missing
network (decision 29). Messages about TLS name the host and what is wrong with it.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
)
from scrapy.utils.url import add_http_if_no_scheme

from walsh_scrapy.exceptions import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.connectivity import Blame


#: As ``socket.getaddrinfo`` returns it: family, type, protocol, canonical name, address.
AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]


class Addresses(NamedTuple):
    """The addresses of a name. Connections go to these, so what was checked is what is used."""

    infos: tuple[AddressInfo, ...]  #: in the order of RFC 6724, as the system sorts them

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses as text, without ports."""
        return tuple(str(info[4][0]) for info in self.infos)


class Proxy(NamedTuple):
    """An HTTP proxy: where it listens, and the Proxy-Authorization header for it."""

    host: str
    port: int
    authorization: bytes | None = None

    @classmethod
    def parse(cls, url: str, authorization: bytes | None) -> Proxy:
        """Parse the URL of a proxy. Raises ValueError unless it is an http URL."""
        parts = urlsplit(add_http_if_no_scheme(url))
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError
        return cls(parts.hostname, parts.port or 80, authorization)


class Endpoint(NamedTuple):
    """Where a connection leads. An idle connection is used for requests with the same endpoint."""

    scheme: str
    host: str
    port: int
    proxy: Proxy | None = None
    bind_address: tuple[str, int] | None = None


#: The name server gave no answer. All other errors mean that the name does not exist.
_NO_RESOLVER: Final = frozenset(
    getattr(socket, name)
    for name in ("EAI_AGAIN", "EAI_FAIL", "EAI_MEMORY", "EAI_SYSTEM")
    if hasattr(socket, name)  # not every system has each
)
#: This machine has run out of something, whatever the host.
_MACHINE_ERRORS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC}
)
#: This machine has no network, or no route to the host.
_NETWORK_ERRORS: Final = frozenset(
    {errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL}
)
#: A firewall refuses the connection: this machine's, or (over IPv6) the host's.
_FIREWALL_ERRORS: Final = frozenset({errno.EPERM, errno.EACCES})

_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")


class NoAddress(Unreachable, CannotResolveHostError):
    """The name of a host has no address, or none was found in time."""


class NoAnswer(Unreachable, DownloadTimeoutError):
    """A host did not accept a connection in time."""


class ConnectionRefused(Unreachable, DownloadConnectionRefusedError):
    """A host refused the connection."""

    is_of_origin = True


class NoConnection(Unreachable, DownloadFailedError):
    """No connection to a host is possible for another reason, such as an ICMP message."""

    is_of_origin = True


class NotConnected(Exception):
    """No connection was made.

    ``failure`` is the exception for middlewares and errbacks, if the host is to blame.
    ``is_refused`` is True if a host refused the connection, which shows that the network works.
    """

    def __init__(self, failure: Exception, blame: Blame, *, is_refused: bool = False) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.blame = blame
        self.is_refused = is_refused


def is_no_such_name(error: BaseException | None) -> bool:
    """Return True if a name server answered that a name does not exist or has no address."""
    return isinstance(error, socket.gaierror) and error.errno not in _NO_RESOLVER


def name_not_found(host: str, error: OSError | UnicodeError) -> NotConnected:
    """Return the exception for a failed lookup; ``error`` may also be a TimeoutError."""
    match error:
        case UnicodeError():
            return NotConnected(NoAddress(host, f"the DNS has no address for {host}"), "host")
        case socket.gaierror() if is_no_such_name(error):
            return NotConnected(NoAddress(host, f"the DNS has no address for {host}"), "host")
        case TimeoutError() | socket.gaierror():
            return NotConnected(NoAddress(host, f"the DNS did not answer for {host}"), "either")
    reason = f"the name {host} cannot be looked up: {error.strerror or error}"
    return NotConnected(NoAddress(host, reason), "machine")


def not_connected(
    host: str, error: OSError, limit: float, *, is_connected: bool = False
) -> NotConnected:
    """Return the exception for a failed connection; ``limit`` is the time limit in seconds.

    With ``is_connected`` the host accepted the connection, and the TLS handshake failed.
    """
    numbers = _numbers(error)
    if not numbers and isinstance(error, TimeoutError):
        step = "the TLS handshake" if is_connected else "a connection"
        failure: Unreachable = NoAnswer(host, f"{host} did not answer {step} in {limit:g} s")
    elif numbers == {errno.ECONNREFUSED}:
        failure = ConnectionRefused(host, f"{host} refused the connection")
    else:
        failure = NoConnection(host, f"no connection to {host}: {_text(error)}")
    failure.is_connected = is_connected
    blame = "host" if is_connected else _blame(numbers)
    return NotConnected(failure, blame, is_refused=errno.ECONNREFUSED in numbers)


def without_proxy(proxy: str, failed: NotConnected) -> NotConnected:
    """Return the exception for an unreachable proxy. No host is to blame."""
    return NotConnected(DownloadFailedError(f"the proxy {proxy}: {failed}"), "machine")


def without_tunnel(failed: NotConnected) -> NotConnected:
    """Return the exception for a proxy that gave no answer. The host may or may not be to blame."""
    return NotConnected(failed.failure, "either")


def _blame(numbers: set[int]) -> Blame:
    if numbers & _MACHINE_ERRORS:
        return "machine"
    return "either" if numbers and numbers <= _NETWORK_ERRORS | _FIREWALL_ERRORS else "host"


def _numbers(error: OSError) -> set[int]:
    """Return the errnos of an error. After several attempts they are only in its text."""
    if error.errno is not None:
        return {error.errno}
    return {int(number) for number in _NUMBER.findall(str(error))}


def _text(error: OSError) -> str:
    """Return what the errnos of an error mean, which its own text does not tell."""
    return ", ".join(os.strerror(number) for number in sorted(_numbers(error))) or str(error)


# ---- TLS ----

_UNTRUSTED: Final = "is signed by somebody whom this machine does not trust"
#: What is wrong with a certificate, by OpenSSL's number of the error (X509_V_ERR). The text follows
#: "the certificate of HOST".
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
    """A host answers, but TLS with it is impossible, so another try in this run would not help."""

    is_of_origin = True
    is_connected = True


class BadCertificate(NoHandshake, IgnoreRequest):
    """The certificate of a host is not valid, so no request is sent to it.

    ``flaw`` completes the sentence "the certificate of ``host`` ...". This is an IgnoreRequest, so
    that Scrapy logs no traceback.
    """

    def __init__(self, host: str, flaw: str) -> None:
        super().__init__(host, f"TLS: the certificate of {host} {flaw}")


class NoSecureConnection(NoHandshake):
    """A TLS handshake failed for a reason other than the certificate."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(host, f"TLS: no secure connection with {host}: {reason}")


#: OpenSSL's numbers of errors for a certificate whose issuer's certificate is missing.
MISSING_ISSUER: Final = frozenset({2, 20, 21})


def no_handshake(error: ssl.SSLError, host: str, issuer: str = "") -> NoHandshake:
    """Return the exception for an error of OpenSSL at a host.

    ``issuer`` is the name of the issuer whose certificate is missing in the chain; "" if that is
    not known.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        message = error.verify_message.removesuffix(".")
        if issuer:
            flaw = (
                f"is signed by {issuer!r}: the server does not send the certificate of that "
                "issuer (an intermediate), and this machine does not trust or know it"
            )
            return BadCertificate(host, flaw)
        return BadCertificate(host, _FLAWS.get(error.verify_code, f"is not valid ({message})"))
    reason = getattr(error, "reason", None) or str(error)  # such as NO_SHARED_CIPHER
    return NoSecureConnection(host, reason.replace("_", " ").lower())


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, the original cause last.

    Some exceptions of Twisted have a list of several causes.
    """
    if error is None:
        return
    yield error
    for failure in getattr(error, "reasons", ()):
        yield from causes(failure.value)
    yield from causes(error.__cause__)
