"""Verification of the certificate of a host, with the reason if it fails (decision 22).

The verification is a callback of OpenSSL. Only a callback gets the reason during the handshake; the
error after it only says "certificate verify failed".
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from service_identity import CertificateError, VerificationError
from service_identity.cryptography import (
    verify_certificate_hostname,
    verify_certificate_ip_address,
)

from walsh_scrapy.wire.tlserrors import certificate_flaw, wrong_host

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from OpenSSL import SSL
    from OpenSSL.crypto import X509


class Verification:
    """Verifies the certificates that a host shows in one handshake, and keeps what is wrong."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.flaw = ""  #: why a certificate is not valid; empty if all of them are

    def __call__(self, _: SSL.Connection, shown: X509, code: int, depth: int, ok: int) -> bool:
        """Return True if one certificate of the chain is valid: OpenSSL's callback."""
        self.flaw = self.flaw or self._flaw(shown, code, depth, valid=bool(ok))
        return not self.flaw

    def _flaw(self, shown: X509, code: int, depth: int, *, valid: bool) -> str:
        """Return what is wrong with a certificate of the chain; empty if it is valid."""
        try:
            certificate = shown.to_cryptography()
            if not valid:
                return certificate_flaw(code, certificate, is_leaf=depth == 0)
            return "" if depth or _is_for(certificate, self._host) else wrong_host(certificate)
        except Exception:  # noqa: BLE001 - a server's bytes: unreadable is invalid
            return "cannot be read"


def is_address(host: str) -> bool:
    """Return True if a host is an IP address, which has no SNI and another kind of name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_for(certificate: Certificate, host: str) -> bool:
    try:
        if is_address(host):
            verify_certificate_ip_address(certificate, host)
        else:
            verify_certificate_hostname(certificate, host)
    except (CertificateError, VerificationError):
        return False
    return True
