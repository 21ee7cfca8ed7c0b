"""What went wrong between a host and us before HTTP began, as sentences for the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from OpenSSL.SSL import X509VerificationCodes as Codes
from scrapy.exceptions import DownloadFailedError, IgnoreRequest
from service_identity import CertificateError, VerificationError

from walsh_scrapy.metadata.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Names are a server's words: so many of them are repeated, each so long.
NAMES_TOLD: Final = 3
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
_CODES: Final = {value: name for name, value in vars(Codes).items() if name.startswith("ERR_")}


class BadCertificate(IgnoreRequest):
    """A host did not prove who it is (decision 22): nothing is asked of it.

    That will not pass by itself, so nobody tries again in this run. ``flaw`` goes on where
    "the certificate of ``host``" ends.
    """

    def __init__(self, host: str, flaw: str) -> None:
        super().__init__(f"TLS: the certificate of {host} {flaw}")
        self.host = host
        self.flaw = flaw


class NoSecureConnection(DownloadFailedError):
    """TLS could not be spoken with a host, whatever its certificate; another try may help."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"TLS: no secure connection with {host}: {reason}")
        self.host = host
        self.reason = reason


def tls_error(
    error: BaseException | None, host: str = "the server"
) -> BadCertificate | NoSecureConnection | None:
    """Return what an error with ``host`` comes down to if TLS is behind it, else None."""
    for cause in causes(error):
        match cause:
            case BadCertificate() | NoSecureConnection():
                return cause
            case VerificationError():
                return BadCertificate(host, "is for another host")
            case CertificateError():
                return BadCertificate(host, "names no host that could be read")
            case SSL.Error():
                reason = _reason(cause)
                if reason == "certificate verify failed":
                    return BadCertificate(host, "is not valid")
                return NoSecureConnection(host, reason)
    return None


def flaw_of(code: int, certificate: x509.Certificate, *, is_leaf: bool = True) -> str:
    """Say what OpenSSL has against a certificate, the host's own or one of its signers'.

    ``code`` is one of ``OpenSSL.SSL.X509VerificationCodes``; dates are in UTC.
    """
    if code in _UNTRUSTED:
        signer = certificate.issuer
        name = "itself" if is_leaf and signer == certificate.subject else _name(signer)
        return f"is signed by nobody this machine trusts ({name})"
    whose = "" if is_leaf else f"is signed by {_name(certificate.subject)}, whose own certificate "
    if code == Codes.ERR_CERT_HAS_EXPIRED:
        return f"{whose}expired on {certificate.not_valid_after_utc.date()}"
    if code == Codes.ERR_CERT_NOT_YET_VALID:
        return f"{whose}is valid only from {certificate.not_valid_before_utc.date()} on"
    words = _CODES.get(code, f"error {code}").removeprefix("ERR_").replace("_", " ").lower()
    return f"{whose}is not valid ({words})"


def hosts_of(certificate: x509.Certificate) -> str:
    """Say whom a certificate is for, where it is not for the host that shows it."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return "is for no host at all"
    names = extension.value
    hosts = [
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    ]
    told = ", ".join(_short(host) for host in hosts[:NAMES_TOLD])
    more = f" and {len(hosts) - NAMES_TOLD} more" if len(hosts) > NAMES_TOLD else ""
    return f"is for {told}{more}" if hosts else "is for no host at all"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those it comes from, the first last.

    Twisted keeps a list of them in one error.
    """
    if error is None:
        return
    yield error
    for failure in getattr(error, "reasons", ()):
        yield from causes(failure.value)
    yield from causes(error.__cause__)


def _reason(error: SSL.Error) -> str:
    """Return OpenSSL's own words: the last of its triples of library, function and reason."""
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
