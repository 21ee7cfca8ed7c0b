"""Certificates for the loopback web: a private CA, and what it and others sign, well or badly.

Nobody trusts the CA but who is told to: `Authority.file` is its certificate. Dates are fixed, so
that what a certificate says does not depend on the day.
"""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

EXPIRED_ON: Final = datetime(2025, 1, 1, tzinfo=UTC)
OTHER_HOST: Final = "other.example"
_FROM: Final = datetime(2020, 1, 1, tzinfo=UTC)
_UNTIL: Final = datetime(2099, 1, 1, tzinfo=UTC)


class Certificate(Enum):
    """How an https site shows who it is."""

    GOOD = "good"  #: for its host, in time, signed by the web's CA
    EXPIRED = "expired"  #: good until EXPIRED_ON
    WRONG_NAME = "wrong name"  #: for OTHER_HOST
    NAMELESS = "nameless"  #: for no host: it has no subjectAltName
    UNKNOWN_CA = "unknown CA"  #: signed by a CA that is on nobody's list
    SELF_SIGNED = "self-signed"  #: signed by its own key


class Authority:
    """A private CA: it signs a certificate for whatever host, in memory of this process only."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="loopback-ca-")
        self._ca = Signer("Loopback CA")
        self._stranger = Signer("Nobody's CA")
        self._contexts: dict[tuple[str, Certificate], ssl.SSLContext] = {}
        self.file = Path(self._folder.name) / "ca.pem"  #: who trusts it believes the good ones
        self.file.write_bytes(self._ca.certificate.public_bytes(Encoding.PEM))

    def context(self, host: str, kind: Certificate) -> ssl.SSLContext:
        """Return what a server needs to answer for that host."""
        if (host, kind) not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._chain(host, kind))
            self._contexts[host, kind] = context
        return self._contexts[host, kind]

    def certificate(self, host: str, kind: Certificate) -> tuple["Signer", x509.Certificate]:
        """Return the certificate that a site of that kind shows, and whose key it is for."""
        until = EXPIRED_ON if kind is Certificate.EXPIRED else _UNTIL
        shown = {Certificate.WRONG_NAME: OTHER_HOST, Certificate.NAMELESS: None}.get(kind, host)
        owner = Signer(host)
        signers = {Certificate.UNKNOWN_CA: self._stranger, Certificate.SELF_SIGNED: owner}
        return owner, signers.get(kind, self._ca).sign(owner, shown, until)

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def _chain(self, host: str, kind: Certificate) -> Path:
        owner, certificate = self.certificate(host, kind)
        key = owner.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = Path(self._folder.name) / f"{len(self._contexts)}.pem"
        path.write_bytes(key + certificate.public_bytes(Encoding.PEM))
        return path


@dataclass(frozen=True)
class Signer:
    """Somebody with a name and a key."""

    name: str

    @cached_property
    def key(self) -> ec.EllipticCurvePrivateKey:
        """A key on P-256, which costs next to nothing to make."""
        return ec.generate_private_key(ec.SECP256R1())

    @cached_property
    def certificate(self) -> x509.Certificate:
        """Its own certificate, as a CA."""
        limits = x509.BasicConstraints(ca=True, path_length=0)
        builder = _for(self, self, _UNTIL).add_extension(limits, critical=True)
        return builder.sign(self.key, SHA256())

    def sign(self, owner: "Signer", host: str | None, until: datetime) -> x509.Certificate:
        """Certify that the owner's key belongs to a host, or to none."""
        builder = _for(owner, self, until)
        if host is not None:
            names = x509.SubjectAlternativeName([_general_name(host)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.key, SHA256())


def _for(owner: Signer, signer: Signer, until: datetime) -> x509.CertificateBuilder:
    public, signing = owner.key.public_key(), signer.key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(_name(owner))
        .issuer_name(_name(signer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing), critical=False)
    )


def _name(signer: Signer) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, signer.name[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)
