"""Why a host could not be connected to, as a sentence, and whose trouble it is (decisions 28, 29).

Errors of TLS say which host, and what is wrong with it (decision 22).
"""

from __future__ import annotations

import errno
import os
import re
import socket
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from OpenSSL.SSL import X509VerificationCodes as Codes
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
)
from service_identity import CertificateError, VerificationError

from walsh_scrapy.exceptions import Unreachable
from walsh_scrapy.metadata.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

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


# ---- TLS ----

#: Most host names of a certificate that are shown, and most characters of each.
MOST_NAMES: Final = 3
LONGEST_NAME: Final = 100

_UNTRUSTED: Final = frozenset(
    {
        Codes.ERR_UNABLE_TO_GET_ISSUER_CERT,
        Codes.ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
        Codes.ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE,
        Codes.ERR_DEPTH_ZERO_SELF_SIGNED_CERT,
        Codes.ERR_SELF_SIGNED_CERT_IN_CHAIN,
    }
)
#: Names of OpenSSL's verification errors, by code.
_CODES: Final = {value: name for name, value in vars(Codes).items() if name.startswith("ERR_")}


class NoHandshake(Unreachable):
    """A host answers, but TLS with it is not possible: another try would not help (decision 28)."""


class BadCertificate(NoHandshake, IgnoreRequest):
    """The certificate of a host is not valid (decision 22), so no request is sent to it.

    ``flaw`` completes the sentence "the certificate of ``host`` ...".
    """

    def __init__(self, host: str, flaw: str) -> None:
        super().__init__(host, f"TLS: the certificate of {host} {flaw}")


class NoSecureConnection(NoHandshake, DownloadFailedError):
    """A TLS handshake failed for a reason other than the certificate."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(host, f"TLS: no secure connection with {host}: {reason}")


def tls_error(error: BaseException | None, host: str = "the server") -> NoHandshake | None:
    """Return the TLS error behind a failed download from ``host``; None if there is none."""
    for cause in causes(error):
        match cause:
            case NoHandshake():
                return cause
            case VerificationError():
                return BadCertificate(host, "is for another host")
            case CertificateError():
                return BadCertificate(host, "has names that cannot be read")
            case SSL.Error():
                reason = _reason(cause)
                if reason == "certificate verify failed":
                    return BadCertificate(host, "is not valid")
                return NoSecureConnection(host, reason)
    return None


def certificate_flaw(code: int, certificate: x509.Certificate, *, is_leaf: bool) -> str:
    """Return why OpenSSL rejects a certificate, to follow "the certificate of HOST".

    ``code`` is one of ``OpenSSL.SSL.X509VerificationCodes``. ``is_leaf`` is False for a certificate
    of a signer. Dates are in UTC.
    """
    if code in _UNTRUSTED:
        signer = certificate.issuer
        is_self_signed = is_leaf and signer == certificate.subject
        how = "self-signed" if is_self_signed else f"signed by {_name(signer)}"
        return f"is {how}, which this machine does not trust"
    whose = "" if is_leaf else f"is signed by {_name(certificate.subject)}, whose own certificate "
    if code == Codes.ERR_CERT_HAS_EXPIRED:
        return f"{whose}expired on {certificate.not_valid_after_utc.date()}"
    if code == Codes.ERR_CERT_NOT_YET_VALID:
        return f"{whose}is valid only from {certificate.not_valid_before_utc.date()} on"
    words = _CODES.get(code, f"error {code}").removeprefix("ERR_").replace("_", " ").lower()
    return f"{whose}is not valid ({words})"


def wrong_host(certificate: x509.Certificate) -> str:
    """Return which other hosts a certificate is for, to follow "the certificate of HOST"."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return "is for no host"
    names = extension.value
    hosts = [
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    ]
    shown = ", ".join(_short(host) for host in hosts[:MOST_NAMES])
    more = f" and {len(hosts) - MOST_NAMES} more" if len(hosts) > MOST_NAMES else ""
    return f"is for {shown}{more}" if hosts else "is for no host"


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


def _reason(error: SSL.Error) -> str:
    """Return the reason in OpenSSL's words, from the last of its error entries."""
    match error.args:
        case [[*_, [_, _, str(reason)]]] if reason:
            return reason
    return one_line(" ".join(map(str, error.args))) or type(error).__name__


def _name(name: x509.Name) -> str:
    for kind in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME):
        for attribute in name.get_attributes_for_oid(kind):
            return _short(str(attribute.value))
    return _short(name.rfc4514_string())


def _short(name: str) -> str:
    return (one_line(name) or "?")[:LONGEST_NAME]
