"""The private CA of a loopback web, and the certificates that its https sites show.

trustme makes the CA and the certificates. No program trusts the CA unless it is configured to.
"""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from trustme import CA, LeafCert

from walsh_scrapy.testing.site import EXPIRED_ON, OTHER_HOST, Certificate

_VALID_FROM: Final = datetime(2020, 1, 1, tzinfo=UTC)  # fixed: messages about it are tested
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_LONGEST_COMMON_NAME: Final = 64  # characters (RFC 5280, appendix A.1)


class CertificateAuthority:
    """Makes a TLS context for any host; keys and certificates last as long as the web.

    A private key is written to a folder that only this user can read, because OpenSSL loads it
    from a file; `close` removes the folder.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="loopback-ca-")
        self._ca = CA(organization_name="Loopback CA")
        self._unknown_ca = CA(organization_name="Nobody's CA")
        self._contexts: dict[tuple[str, Certificate, str | None], ssl.SSLContext] = {}
        self.file = Path(self._folder.name) / "ca.pem"  #: trust this to trust GOOD certificates
        self._ca.cert_pem.write_to_path(self.file)

    def context(self, host: str, kind: Certificate, version: str | None = None) -> ssl.SSLContext:
        """Return the TLS context of a server for that host, made once for each host and kind.

        With a `version`, for example "1.2", it speaks no other. Sessions are resumed by tickets.
        Raises idna.IDNAError for a name that IDNA 2008 forbids, for example with an underscore.
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
        leaf = self._issue(host, kind)
        if kind is Certificate.INCOMPLETE:
            return leaf.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes()
        return leaf.private_key_and_cert_chain_pem.bytes()

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def _issue(self, host: str, kind: Certificate) -> LeafCert:
        names = {Certificate.WRONG_NAME: [OTHER_HOST], Certificate.NAMELESS: []}
        return self._signer(kind).issue_cert(
            *names.get(kind, [host.strip("[]")]),
            common_name=host[:_LONGEST_COMMON_NAME],
            not_before=_VALID_FROM,
            not_after=EXPIRED_ON if kind is Certificate.EXPIRED else None,
        )

    def _signer(self, kind: Certificate) -> CA:
        match kind:
            case Certificate.UNKNOWN_CA:
                return self._unknown_ca
            case Certificate.INCOMPLETE:
                return self._ca.create_child_ca()
        return self._ca
