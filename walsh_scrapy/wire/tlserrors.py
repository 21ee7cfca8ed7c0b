"""TLS errors as sentences for the operator: which host, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from OpenSSL.SSL import X509VerificationCodes as Codes
from scrapy.exceptions import DownloadFailedError, IgnoreRequest
from service_identity import CertificateError, VerificationError

from walsh_scrapy.exceptions import Unreachable
from walsh_scrapy.metadata.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

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
