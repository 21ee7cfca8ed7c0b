"""Verification of the certificate of every host, with the reason if it fails (decision 22).

The verification is a callback of OpenSSL. Only a callback gets the reason during the handshake; the
error after it only says "certificate verify failed". Twisted's own callback is not used, because it
accepts a certificate that names no host, or whose names cannot be read.
"""

from __future__ import annotations

import weakref
from ipaddress import ip_address
from typing import TYPE_CHECKING

from OpenSSL import SSL
from service_identity import CertificateError, VerificationError
from service_identity.cryptography import (
    verify_certificate_hostname,
    verify_certificate_ip_address,
)
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.python.failure import Failure
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer  # type: ignore[import-untyped]

from walsh_scrapy.wire.tlserrors import BadCertificate, certificate_flaw, wrong_host

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from OpenSSL.crypto import X509
    from twisted.protocols.tls import TLSMemoryBIOProtocol


@implementer(IPolicyForHTTPS)
class CertificatePolicy:
    """Adds our verification to another policy, which chooses TLS options and trusted signers."""

    def __init__(self, policy: IPolicyForHTTPS) -> None:
        self._policy = policy

    def creatorForNetloc(  # noqa: N802 - Twisted's name
        self, hostname: bytes, port: int
    ) -> VerifyingCreator:
        """Return an object that makes verified connections to a host."""
        # To mypy the methods of a zope interface have no self.
        creator = self._policy.creatorForNetloc(  # type: ignore[call-arg, misc]
            hostname,  # type: ignore[arg-type]
            port,
        )
        return VerifyingCreator(creator, hostname.decode("ascii"))


@implementer(IOpenSSLClientConnectionCreator)
class VerifyingCreator:
    """Makes TLS connections that fail with ``BadCertificate`` if the certificate is not valid."""

    def __init__(self, creator: IOpenSSLClientConnectionCreator, host: str) -> None:
        self._creator = creator
        self._host = host

    def clientConnectionForTLS(  # noqa: N802 - Twisted's name
        self, protocol: TLSMemoryBIOProtocol
    ) -> SSL.Connection:
        """Return the client side of a new TLS connection."""
        connection = self._creator.clientConnectionForTLS(protocol)  # type: ignore[call-arg, misc]

        # The protocol refers to its connection: a strong reference back would be a cycle.
        reference = weakref.ref(protocol)

        def verify(_: SSL.Connection, shown: X509, code: int, depth: int, ok: int) -> bool:
            flaw = self._flaw(shown, code, depth, valid=bool(ok))
            if flaw and (failed := reference()):
                failure = Failure(BadCertificate(self._host, flaw))  # type: ignore[no-untyped-call]
                failed.failVerification(failure)  # type: ignore[no-untyped-call]
            return not flaw

        connection.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, verify)
        return connection

    def _flaw(self, shown: X509, code: int, depth: int, *, valid: bool) -> str:
        """Return what is wrong with a certificate of the chain; empty if it is valid."""
        try:
            certificate = shown.to_cryptography()
            if not valid:
                return certificate_flaw(code, certificate, is_leaf=depth == 0)
            return "" if depth or _is_for(certificate, self._host) else wrong_host(certificate)
        except Exception:  # noqa: BLE001 - a server's bytes: unreadable is invalid
            return "cannot be read"


def _is_for(certificate: Certificate, host: str) -> bool:
    try:
        address = str(ip_address(host.strip("[]")))
    except ValueError:
        address = ""
    try:
        if address:
            verify_certificate_ip_address(certificate, address)
        else:
            verify_certificate_hostname(certificate, host)
    except (CertificateError, VerificationError):
        return False
    return True
