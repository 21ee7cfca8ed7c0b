"""Verifies the certificate of every host we talk to, and says what is wrong with one (decision 22).

Only the callback that OpenSSL asks during a handshake learns what it has against a certificate;
whoever comes later is told "certificate verify failed". And Twisted's own callback lets a
certificate pass whose names cannot be read, or that has none.
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

from walsh_scrapy.wire.tlserrors import BadCertificate, flaw_of, hosts_of

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from OpenSSL.crypto import X509
    from twisted.protocols.tls import TLSMemoryBIOProtocol


@implementer(IPolicyForHTTPS)
class CertificatePolicy:
    """Another policy, which says how to connect and whom to trust, with our verification."""

    def __init__(self, policy: IPolicyForHTTPS) -> None:
        self._policy = policy

    def creatorForNetloc(  # noqa: N802 - Twisted's name
        self, hostname: bytes, port: int
    ) -> VerifyingCreator:
        """Return what connects to a host and verifies its certificate."""
        # To mypy the methods of a zope interface have no self.
        creator = self._policy.creatorForNetloc(  # type: ignore[call-arg, misc]
            hostname,  # type: ignore[arg-type]
            port,
        )
        return VerifyingCreator(creator, hostname.decode("ascii"))


@implementer(IOpenSSLClientConnectionCreator)
class VerifyingCreator:
    """Makes connections that fail with ``BadCertificate`` unless the host proves who it is."""

    def __init__(self, creator: IOpenSSLClientConnectionCreator, host: str) -> None:
        self._creator = creator
        self._host = host

    def clientConnectionForTLS(  # noqa: N802 - Twisted's name
        self, protocol: TLSMemoryBIOProtocol
    ) -> SSL.Connection:
        """Return the client's side of a new TLS connection."""
        connection = self._creator.clientConnectionForTLS(protocol)  # type: ignore[call-arg, misc]

        # A connection must not hold on to its protocol, which holds on to it.
        known = weakref.ref(protocol)

        def verify(_: SSL.Connection, shown: X509, code: int, depth: int, ok: int) -> bool:
            flaw = self._flaw(shown, code, depth, valid=bool(ok))
            if flaw and (ended := known()):
                failure = Failure(BadCertificate(self._host, flaw))  # type: ignore[no-untyped-call]
                ended.failVerification(failure)  # type: ignore[no-untyped-call]
            return not flaw

        connection.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, verify)
        return connection

    def _flaw(self, shown: X509, code: int, depth: int, *, valid: bool) -> str:
        """Say what is wrong with a certificate of the chain; nothing, if all is well."""
        try:
            certificate = shown.to_cryptography()
            if not valid:
                return flaw_of(code, certificate, is_leaf=depth == 0)
            return "" if depth or _is_for(certificate, self._host) else hosts_of(certificate)
        except Exception:  # noqa: BLE001 - a server's bytes: what cannot be read proves nothing
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
