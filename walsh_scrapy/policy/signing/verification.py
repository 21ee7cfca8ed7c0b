"""What a verifier does with a directory: it reads the keys, and checks that each has signed it.

As strict as the strictest verifier that is known: ``created`` may not be in its future.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import http_sf

from walsh_scrapy.policy.signing.keys import AUTHORITY, DIGEST, DIRECTORY_TAG, BadKey, PublicKey
from walsh_scrapy.policy.signing.requests import (
    identifier_of,
    signature_base,
    signed_authority,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from walsh_scrapy.policy.signing.requests import Component, Parameters

#: Most keys of a directory; a verifier need not read more (the draft's "Key count").
MOST_KEYS: Final = 100
_PRIVATE: Final = "d"


class BadDirectory(ValueError):
    """A document is no directory of keys; the message completes "the directory ..."."""


class BadSignature(ValueError):
    """A signature is missing or does not verify; the message is a sentence without its end."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The Ed25519 keys of a directory by their thumbprints."""

    keys: Mapping[str, PublicKey]
    others: int = 0  #: keys of other types, which are left out

    @classmethod
    def from_body(cls, body: bytes) -> KeySet:
        """Read a JSON Web Key Set. Raises BadDirectory if it is none, or has a private key."""
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise BadDirectory("is no JSON") from None
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise BadDirectory('has no list of "keys"')
        if len(listed) > MOST_KEYS:
            raise BadDirectory(f"has more than {MOST_KEYS} keys")
        if any(_PRIVATE in each for each in listed):
            raise BadDirectory('publishes a private key ("d"): replace that key at once')
        keys = dict(filter(None, map(_read, listed)))
        return cls(keys, len(listed) - len(keys))


def _read(jwk: Mapping[str, Any]) -> tuple[str, PublicKey] | None:
    """Return a key with its thumbprint, None for one of another type."""
    if (jwk.get("kty"), jwk.get("crv")) != ("OKP", "Ed25519"):
        return None
    try:
        key = PublicKey.from_jwk(jwk)
    except BadKey as error:
        raise BadDirectory(f"has a key that {error}") from None
    if jwk.get("kid", key.thumbprint) != key.thumbprint:
        raise BadDirectory(f"has a key whose kid is not its thumbprint, {key.thumbprint}")
    return key.thumbprint, key


def check_proof(
    key: PublicKey, host: str, fields: Mapping[str, str], body: bytes, now: float
) -> int:
    """Check that a key signed the response with its directory, and return until when that counts.

    ``host`` is the Host field of the request, ``fields`` are the header fields of the response by
    their names in lower case; times are in epoch seconds. Raises BadSignature.
    """
    response = _Message({identifier_of(AUTHORITY): signed_authority(host)}, fields)
    proofs = response.signatures(DIRECTORY_TAG)
    proof = next((each for each in proofs if each.keyid == key.thumbprint), None)
    if proof is None:
        raise BadSignature(f'there is no signature by it with the tag "{DIRECTORY_TAG}"')
    for component in (AUTHORITY, DIGEST):
        if component not in proof.components:
            identifier = identifier_of(component)
            raise BadSignature(f"its signature does not cover {identifier}")
    digests = _dictionary(fields.get("content-digest", ""), "Content-Digest")
    if digests.get("sha-256", (b"", {}))[0] != sha256(body).digest():
        raise BadSignature("the Content-Digest is not that of the directory")
    return proof.check(response, key, now)


@dataclass(frozen=True, slots=True)
class _Message:
    """What a signature may cover: derived components by their identifiers, and fields."""

    derived: Mapping[str, str]
    fields: Mapping[str, str]

    def value(self, component: Component) -> str:
        """Return the value of a component (RFC 9421 2). Raises BadSignature."""
        name, of = component
        identifier = identifier_of(component)
        value = self.derived.get(identifier)
        if value is None and not of:
            value = self.fields.get(name)
        if value is None and set(of) == {"key"}:
            members = _dictionary(self.fields.get(name, ""), name)
            value = _member(members.get(str(of["key"])))
        if value is None:
            raise BadSignature(f"the signature covers {identifier}, which is not there")
        return value.strip()

    def signatures(self, tag: str) -> Iterator[_Signature]:
        """Yield the signatures with a tag. Raises BadSignature if they cannot be read."""
        values = _dictionary(self.fields.get("signature", ""), "Signature")
        inputs = _dictionary(self.fields.get("signature-input", ""), "Signature-Input")
        for label, (covered, parameters) in inputs.items():
            if parameters.get("tag") != tag:
                continue
            if not (
                isinstance(covered, list) and all(isinstance(name, str) for name, _ in covered)
            ):
                raise BadSignature(f"Signature-Input has no list of names for {label}")
            identifiers = [identifier_of((name, dict(sorted(of.items())))) for name, of in covered]
            if twice := next((each for each in identifiers if identifiers.count(each) > 1), None):
                raise BadSignature(f"the signature covers {twice} twice")
            value, _ = values.get(label, (b"", {}))
            yield _Signature(label, tuple(covered), parameters, value)


@dataclass(frozen=True, slots=True)
class _Signature:
    label: str
    components: tuple[Component, ...]
    parameters: Parameters
    value: bytes

    @property
    def keyid(self) -> str:
        return str(self.parameters.get("keyid"))

    def check(self, message: _Message, key: PublicKey, now: float) -> int:
        """Return when the signature expires.

        Raises BadSignature unless the key signed the message, for this moment.
        """
        created, expires = (self.parameters.get(name) for name in ("created", "expires"))
        if type(created) is not int or type(expires) is not int:
            raise BadSignature("the signature does not say when it was created and expires")
        if created > now:
            raise BadSignature(f"the signature was created in the future, at {created}")
        if expires <= now:
            raise BadSignature(f"the signature expired at {expires}")
        if self.parameters.get("alg", "ed25519") != "ed25519":
            raise BadSignature("the signature is of another algorithm than ed25519")
        values = [(each, message.value(each)) for each in self.components]
        is_signed = isinstance(self.value, bytes) and key.has_signed(
            signature_base(values, self.parameters), self.value
        )
        if not is_signed:
            raise BadSignature(f"the signature is not by the key {key.thumbprint}")
        return expires


def _dictionary(field: str, name: str) -> dict[str, Any]:
    """Return the members of a field, each with its parameters (RFC 9651 4.2.2)."""
    try:
        return dict(http_sf.parse(field.encode("ascii"), tltype="dictionary"))  # type: ignore[arg-type]
    except (UnicodeEncodeError, ValueError) as error:
        raise BadSignature(f"{name} is no dictionary: {error}") from None


def _member(member: tuple[Any, Mapping[str, object]] | None) -> str | None:
    """Return a member as it is signed; None for one with parameters, which counts for nothing."""
    if member is None or member[1] or not isinstance(member[0], str):
        return None
    return http_sf.ser(member[0])
