"""Web Bot Auth: requests that anybody can verify (RFC 9421).

The protocol is draft-ietf-webbotauth-httpsig-protocol, "the draft" in this module. Times and nonces
are arguments. Crawls that sign nothing do not import this.

Keys are Ed25519: private ones as PEM, public ones as JWK with their thumbprint (RFC 8037, 7638).
Verifiers find the public keys in a directory, whose response is signed (the draft's "Directory
Format"). One signature by each key proves that its owner publishes it under this host (the draft's
"Possession Proof on the Directory Response").
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
    """The text or file is not a usable Ed25519 key; the message completes "it ..."."""


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 key that signatures are verified with."""

    data: bytes  #: 32 bytes

    @cached_property
    def thumbprint(self) -> str:
        """The id of the key: the SHA-256 of its JWK's required members (RFC 7638 3)."""
        members = {"crv": "Ed25519", "kty": "OKP", "x": _base64url(self.data)}
        return _base64url(sha256(json.dumps(members, separators=(",", ":")).encode()).digest())

    @property
    def jwk(self) -> dict[str, str]:
        """The key as it stands in a directory."""
        return {
            "kty": "OKP",
            "crv": "Ed25519",
            "kid": self.thumbprint,
            "x": _base64url(self.data),
            "use": "sig",
        }


class PrivateKey:
    """An Ed25519 key that signs. Neither its text nor its representation shows the key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> PrivateKey:
        """Return a new key, from the random numbers of the system."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> PrivateKey:
        """Read a key as ``walsh keys new`` and ``openssl genpkey`` write it (RFC 8410).

        Raises BadKey for anything else. Its message holds nothing of the key.
        """
        try:
            key = load_pem_private_key(pem, password=None)
        except TypeError:  # that a password is needed
            raise BadKey("is encrypted; a key that crawls use has no password") from None
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
    """Return the text that is signed (RFC 9421 2.5): components with their values, parameters.

    ``parameters`` are signed in their order.
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
#: Seconds that ``created`` is set back: verifiers refuse one that is in their future.
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
        """Return the fields of a request that is sent at the moment ``now``, in epoch seconds.

        ``host`` is its Host field. The request must use https.
        """
        created = int(now) - BACKDATED
        return self.sign(host, created, created + LIFETIME, nonce)

    def sign(
        self, host: str, created: int, expires: int, nonce: str, label: str = _LABEL
    ) -> dict[str, str]:
        """Return the fields of a request that is signed with these times, in epoch seconds."""
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
    """Return ``@authority`` of an https request by its Host field (RFC 9421 2.2.3).

    Verifiers know the Host as it is sent: only case and default port are normalized.
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port in ("", "443") else host.lower()


DIRECTORY_TYPE: Final = "application/http-message-signatures-directory+json"
DIRECTORY_TAG: Final = "http-message-signatures-directory"
#: The parts that each proof covers: the requested host, and the keys.
AUTHORITY: Final[Component] = ("@authority", {"req": True})
DIGEST: Final[Component] = ("content-digest", {})

_CACHED: Final = "max-age=86400"


def directory_body(keys: Sequence[PublicKey]) -> bytes:
    """Return the JSON Web Key Set (RFC 7517 5): one line, its line end included."""
    return json.dumps({"keys": [key.jwk for key in keys]}, separators=(",", ":")).encode() + b"\n"


def content_digest(body: bytes) -> str:
    """Return the Content-Digest field of a body (RFC 9530 2)."""
    return f"sha-256=:{b64encode(sha256(body).digest()).decode('ascii')}:"


def directory_fields(
    keys: Sequence[PrivateKey], host: str, body: bytes, now: float, lifetime: int
) -> dict[str, str]:
    """Return the header fields of the response with this body, signed by each key.

    ``host`` is the Host field of requests for it, ``now`` in epoch seconds. The proofs count for
    ``lifetime`` seconds.
    """
    created = int(now) - BACKDATED
    digest = content_digest(body)
    inputs, signatures = [], []
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
