"""Web Bot Auth: signed requests, which anybody can verify (RFC 9421).

The protocol is draft-ietf-webbotauth-httpsig-protocol, "the draft" in this module. Times and nonces
are arguments. A crawl without a key does not import this module.

Keys are Ed25519: private keys as PEM, public keys as JWK with a thumbprint (RFC 8037, RFC 7638).
Verifiers find the public keys in a directory (the draft's "Directory Format"). Its response has a
signature by each key, which proves that the owner of the key publishes it under this host (the
draft's "Possession Proof on the Directory Response").
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import http_sf
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from http_sf.types import ItemType, ParamsType

if TYPE_CHECKING:
    from collections.abc import Sequence


class BadKey(ValueError):
    """A file is not a usable Ed25519 key. The message completes the sentence "the file ..."."""


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 key that verifies signatures."""

    data: bytes  #: 32 bytes

    @cached_property
    def thumbprint(self) -> str:
        """The id of the key: SHA-256 of the required members of its JWK (RFC 7638 3)."""
        members = {"crv": "Ed25519", "kty": "OKP", "x": _base64url(self.data)}
        return _base64url(sha256(json.dumps(members, separators=(",", ":")).encode()).digest())

    @property
    def jwk(self) -> dict[str, str]:
        """The key as a member of a directory."""
        return {
            "kty": "OKP",
            "crv": "Ed25519",
            "kid": self.thumbprint,
            "x": _base64url(self.data),
            "use": "sig",
        }


class PrivateKey:
    """An Ed25519 key that signs. `str` and `repr` do not show it."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> PrivateKey:
        """Return a new random key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> PrivateKey:
        """Read a key that ``walsh keys new`` or ``openssl genpkey`` wrote (RFC 8410).

        Raises BadKey for anything else. The message contains no part of the key.
        """
        try:
            key = load_pem_private_key(pem, password=None)
        except TypeError:  # the key needs a password
            raise BadKey("is encrypted; the key of a crawl must not have a password") from None
        except (ValueError, UnsupportedAlgorithm):
            raise BadKey("holds no private key in PEM (PKCS #8)") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey("holds a key of another type than Ed25519")
        return cls(key)

    @property
    def pem(self) -> bytes:
        """The key as PEM (PKCS #8, not encrypted)."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, text: str) -> bytes:
        """Return the signature of an ASCII text: 64 bytes."""
        return self._key.sign(text.encode("ascii"))


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


Parameters: TypeAlias = ParamsType
#: A part of a message: its name, and its parameters, such as ``{"key": "sig1"}``.
Component: TypeAlias = tuple[str, ParamsType]


def input_field(label: str, components: Sequence[Component], parameters: Parameters) -> str:
    """Return a Signature-Input field with one member (RFC 9421 4.1)."""
    covered: list[ItemType] = list(components)
    return http_sf.ser({label: (covered, parameters)})


def signature_base(values: Sequence[tuple[Component, str]], parameters: Parameters) -> str:
    """Return the text that is signed: components with their values, then parameters.

    This is the signature base of RFC 9421 2.5. The order of ``parameters`` is part of it.
    """
    lines = [f"{http_sf.ser(component)}: {value}" for component, value in values]
    covered = input_field("sig", [component for component, _ in values], parameters)
    return "\n".join([*lines, f'"@signature-params": {covered.removeprefix("sig=")}'])


def signature_field(label: str, signature: bytes) -> str:
    """Return a Signature field with one member (RFC 9421 4.2)."""
    return http_sf.ser({label: signature})


#: The fields of a signed request.
FIELDS: Final = ("Signature-Agent", "Signature-Input", "Signature")
REQUEST_TAG: Final = "web-bot-auth"
#: Seconds by which ``created`` is set back, because verifiers refuse a time in their future.
BACKDATED: Final = 5
#: Seconds from ``created`` to ``expires``.
LIFETIME: Final = 60

_LABEL: Final = "sig1"


@dataclass(frozen=True, kw_only=True)
class RequestSigner:
    """Signs requests with one key."""

    key: PrivateKey
    agent: str  #: the https URL at which verifiers find the directory of keys
    #: The form of Signature-Agent: by the newest draft, or as up to
    #: draft-meunier-web-bot-auth-architecture-03.
    form: Literal["dictionary", "string"]

    def fields(self, host: str, now: float, nonce: str) -> dict[str, str]:
        """Return the signature fields of an https request that is sent at ``now``.

        ``now`` is in epoch seconds, ``host`` is the value of the Host field.
        """
        created = int(now) - BACKDATED
        return self.sign(host, created, created + LIFETIME, nonce)

    def sign(
        self, host: str, created: int, expires: int, nonce: str, label: str = _LABEL
    ) -> dict[str, str]:
        """Return the signature fields of a request with these times, in epoch seconds."""
        parameters: Parameters = {
            "created": created,
            "keyid": self.key.public.thumbprint,
            "alg": "ed25519",
            "expires": expires,
            "nonce": nonce,
            "tag": REQUEST_TAG,
        }
        agent = http_sf.ser(self.agent)
        component: Component = ("signature-agent", {})
        field = agent
        if self.form == "dictionary":
            component = ("signature-agent", {"key": label})
            field = f"{label}={agent}"
        values = [(("@authority", {}), signed_authority(host)), (component, agent)]
        base = signature_base(values, parameters)
        covered = [component for component, _ in values]
        written = (
            field,
            input_field(label, covered, parameters),
            signature_field(label, self.key.sign(base)),
        )
        return dict(zip(FIELDS, written, strict=True))


def signed_authority(host: str) -> str:
    """Return the ``@authority`` of an https request with this Host field (RFC 9421 2.2.3).

    Only case and default port are normalized, because verifiers see the Host as it is sent.
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port in ("", "443") else host.lower()


DIRECTORY_TYPE: Final = "application/http-message-signatures-directory+json"
DIRECTORY_TAG: Final = "http-message-signatures-directory"
#: The components that each signature of a directory covers: the requested host, and the keys.
AUTHORITY: Final[Component] = ("@authority", {"req": True})
DIGEST: Final[Component] = ("content-digest", {})

_CACHED: Final = "max-age=86400"


def directory_body(keys: Sequence[PublicKey]) -> bytes:
    """Return the JSON Web Key Set of a directory (RFC 7517 5), as one line."""
    return json.dumps({"keys": [key.jwk for key in keys]}, separators=(",", ":")).encode() + b"\n"


def content_digest(body: bytes) -> str:
    """Return the Content-Digest field of a body (RFC 9530 2)."""
    return f"sha-256=:{b64encode(sha256(body).digest()).decode('ascii')}:"


def directory_fields(
    keys: Sequence[PrivateKey], host: str, body: bytes, now: float, lifetime: int
) -> dict[str, str]:
    """Return the header fields of a directory with this body, signed by each key.

    ``host`` is the Host field of the request, ``now`` is in epoch seconds. The signatures are valid
    for ``lifetime`` seconds.
    """
    created = int(now) - BACKDATED
    digest = content_digest(body)
    inputs = []
    signatures = []
    for number, key in enumerate(keys, 1):
        label = f"sig{number}"
        parameters: Parameters = {
            "created": created,
            "expires": created + lifetime,
            "keyid": key.public.thumbprint,
            "tag": DIRECTORY_TAG,
        }
        base = signature_base([(AUTHORITY, signed_authority(host)), (DIGEST, digest)], parameters)
        inputs.append(input_field(label, [AUTHORITY, DIGEST], parameters))
        signatures.append(signature_field(label, key.sign(base)))
    return {
        "Content-Type": DIRECTORY_TYPE,
        "Cache-Control": _CACHED,
        "Content-Digest": digest,
        "Signature-Input": ", ".join(inputs),
        "Signature": ", ".join(signatures),
    }
