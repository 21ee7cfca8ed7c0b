"""The private CA of a test web, and the certificates of its https sites.

No program trusts the CA unless it is told to. trustme creates the CA. The certificates of hosts are
created here, because trustme refuses names that the DNS allows, such as `my_shop.example`.
"""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

from ada_url import idna_to_ascii
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from trustme import CA

from walsh_scrapy.testing.certificate import EXPIRED_ON, OTHER_HOST, Certificate

_VALID_FROM: Final = datetime(2020, 1, 1, tzinfo=UTC)  # fixed, because tests expect this date
_VALIDITY: Final = timedelta(days=36_500)
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_MAX_COMMON_NAME: Final = 64  # characters (RFC 5280, appendix A.1)


class CertificateAuthority:
    """Creates TLS contexts for hosts. `close` removes the keys and certificates.

    Private keys are written to a folder that only this user can read, because OpenSSL loads them
    from files.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="loopback-ca-")
        self._ca = CA(organization_name="Loopback CA")
        self._unknown_ca = CA(organization_name="Nobody's CA")
        self._contexts: dict[tuple[str, Certificate, str | None], ssl.SSLContext] = {}
        self.file = Path(self._folder.name) / "ca.pem"  #: the certificate of the CA, to be trusted
        self._ca.cert_pem.write_to_path(self.file)

    def context(self, host: str, kind: Certificate, version: str | None = None) -> ssl.SSLContext:
        """Return the TLS context of a server for this host; it is cached.

        With a `version`, for example "1.2", the server speaks no other. Sessions can be resumed.
        """
        key = host, kind, version
        if key not in self._contexts:
            path = Path(self._folder.name) / f"{len(self._contexts)}.pem"
            path.write_bytes(self.key_and_certificate(host, kind))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(path)
            if version:
                context.minimum_version = context.maximum_version = _VERSIONS[version]
            self._contexts[key] = context
        return self._contexts[key]

    def key_and_certificate(self, host: str, kind: Certificate) -> bytes:
        """Return a new private key and the certificate for it, as PEM."""
        if kind is Certificate.SELF_SIGNED:
            root = CA(organization_name=host)
            return root.private_key_pem.bytes() + root.cert_pem.bytes()
        names = {Certificate.WRONG_NAME: [OTHER_HOST], Certificate.NAMELESS: []}
        end = EXPIRED_ON if kind is Certificate.EXPIRED else _VALID_FROM + _VALIDITY
        return _issue(self._signer(kind), host, names.get(kind, [host]), end)

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def _signer(self, kind: Certificate) -> CA:
        match kind:
            case Certificate.UNKNOWN_CA:
                return self._unknown_ca
            case Certificate.INCOMPLETE:
                return self._ca.create_child_ca()
        return self._ca


def _issue(ca: CA, subject: str, hosts: list[str], end: datetime) -> bytes:
    """Return a new private key, and a certificate that the CA signs for these hosts, as PEM."""
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    pem = ca.private_key_pem.bytes()
    issuer_key = cast("ec.EllipticCurvePrivateKey", load_pem_private_key(pem, password=None))
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    name = x509.NameAttribute(NameOID.COMMON_NAME, subject[:_MAX_COMMON_NAME])
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([name]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(authority, critical=False)
        .add_extension(x509.SubjectAlternativeName(map(_general_name, hosts)), critical=True)
        .add_extension(usage, critical=False)
        .sign(issuer_key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)


def _general_name(host: str) -> x509.GeneralName:
    """Return a host as certificates spell it: an address, or an ASCII name without final dot."""
    try:
        return x509.IPAddress(ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(idna_to_ascii(host.removesuffix(".")).decode())
