"""Verifies the signature of a request as a site would (Web Bot Auth, RFC 9421).

It shares no code with the crawler, so a bug in the code that signs cannot hide here.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import http_sf
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from http_sf.types import ItemType, ParamsType

    from walsh_scrapy.testing.hit import Hit

_TAG: Final = "web-bot-auth"
_FIELDS: Final = ("Signature", "Signature-Input")


class SignatureError(Exception):
    """A signature does not verify; the message is a sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The Web Bot Auth signature of a request."""

    hit: Hit  #: the request as it was sent
    label: str
    covered: tuple[tuple[str, ParamsType], ...]
    parameters: Mapping[str, Any]
    value: bytes

    @classmethod
    def from_hit(cls, hit: Hit) -> Signature:
        """Read the signature of a request. Raises SignatureError if none is for Web Bot Auth."""
        values, inputs = (_dictionary(hit, name) for name in _FIELDS)
        for label, (covered, parameters) in inputs.items():
            if parameters.get("tag") != _TAG:
                continue
            value = values.get(label, (None, {}))[0]
            if not isinstance(covered, list) or not isinstance(value, bytes):
                raise SignatureError(f"the signature {label} lacks its value or its components")
            if not all(isinstance(name, str) for name, _ in covered):
                raise SignatureError(f"the signature {label} covers something that is not a name")
            return cls(hit, label, tuple(covered), parameters, value)
        raise SignatureError(f'no signature has the tag "{_TAG}"')

    @property
    def key_id(self) -> str:
        """The key id that the signature names: the thumbprint of the key."""
        return str(self.parameters.get("keyid"))

    def check(self) -> None:
        """Check what needs no key: times and covered components. Raises SignatureError."""
        created, expires = (self.parameters.get(name) for name in ("created", "expires"))
        if type(created) is not int or type(expires) is not int:
            raise SignatureError("a signature needs both created and expires")
        if created > self.hit.wall:
            early = created - self.hit.wall
            raise SignatureError(f"a signature was created {early:.1f} s after the request")
        if expires <= self.hit.wall:
            late = self.hit.wall - expires
            raise SignatureError(f"a signature expired {late:.1f} s before the request")
        names = {name for name, _ in self.covered}
        if not self.hit.header("Signature-Agent"):
            raise SignatureError("a signed request has no Signature-Agent header")
        if "signature-agent" not in names:
            raise SignatureError("a signature does not cover Signature-Agent")
        if names.isdisjoint(("@authority", "@target-uri")):
            raise SignatureError("a signature covers neither @authority nor @target-uri")
        self._check_unique()
        self._check_agent()

    def _check_unique(self) -> None:
        """Check that no component is covered twice, with its parameters in any order."""
        components: set[str] = set()
        for name, parameters in self.covered:
            component = http_sf.ser((name, dict(sorted(parameters.items()))))
            if component in components:
                raise SignatureError(f"a signature covers {component} twice (RFC 9421 2)")
            components.add(component)

    def _check_agent(self) -> None:
        """Check that the signature covers its own member of Signature-Agent.

        A covered component without a key is enough if the header is a string, or a dictionary whose
        only member belongs to this signature.
        """
        keys = {
            parameters.get("key") for name, parameters in self.covered if name == "signature-agent"
        }
        if not _is_string(self.hit, "Signature-Agent"):
            members = set(_dictionary(self.hit, "Signature-Agent"))
            if None in keys and members != {self.label}:
                raise SignatureError("a signature must cover its own member of Signature-Agent")
        if not keys & {None, self.label}:
            raise SignatureError(f"{self.label} does not cover its member of Signature-Agent")

    def verify(self, key: Ed25519PublicKey) -> None:
        """Check that this key signed this request. Raises SignatureError."""
        if self.parameters.get("alg", "ed25519") != "ed25519":
            raise SignatureError("a signature names an algorithm other than ed25519")
        lines = [f"{http_sf.ser(item)}: {self._value(*item)}" for item in self.covered]
        covered: list[ItemType] = list(self.covered)
        listed = http_sf.ser({"sig": (covered, dict(self.parameters))})
        lines.append(f'"@signature-params": {listed.removeprefix("sig=")}')
        try:
            key.verify(self.value, "\n".join(lines).encode("latin-1"))
        except (InvalidSignature, UnicodeEncodeError):
            raise SignatureError("a signature does not verify for the request it is in") from None

    def _value(self, name: str, parameters: ParamsType) -> str:
        """Return the value of a component of the request (RFC 9421 2)."""
        hit = self.hit
        authority = (hit.header("Host") or "").lower().removesuffix(":443")
        path, mark, query = hit.path.partition("?")
        derived = {
            "@authority": authority,
            "@method": hit.method,
            "@path": path,
            "@query": f"?{query}",
            "@request-target": hit.path,
            "@scheme": "https",
            "@target-uri": f"https://{authority}{path}{mark}{query}",
        }
        if not parameters and name in derived:
            return derived[name]
        if not parameters and hit.header(name) is not None:
            return ", ".join(value.strip() for value in hit.header_values(name))
        if set(parameters) == {"key"}:
            member = _dictionary(hit, name).get(str(parameters["key"]))
            if member is not None and isinstance(member[0], str):
                return http_sf.ser(member)
        component = http_sf.ser((name, parameters))
        raise SignatureError(f"a signature covers {component}, which the request does not have")


def verify_signature(hit: Hit, directory: bytes | str, *, now: float | None = None) -> str:
    """Return the thumbprint of the key that signed a request (RFC 9421, tag `web-bot-auth`).

    `directory` is the JSON Web Key Set that the crawler's operator publishes. `now` is the moment
    of the check in seconds since the epoch (default: when the request came). Raises AssertionError,
    with the reason, if the request is not signed, or if the signature is invalid, expired or
    created later than `now`.
    """
    if hit.scheme != "https":
        raise AssertionError(f"{hit.url} was requested over http, but only https is signed")
    try:
        signature = Signature.from_hit(hit if now is None else replace(hit, wall=now))
        signature.check()
        signature.verify(_key_of(directory, signature.key_id, signature.hit.wall))
    except SignatureError as error:
        raise AssertionError(f"{hit.url}: {error}") from None
    return signature.key_id


def _key_of(directory: bytes | str, thumbprint: str, at: float) -> Ed25519PublicKey:
    """Return the key with this thumbprint from a directory, if it is valid at a moment.

    The members `nbf` and `exp` limit the time in which a key is valid. Raises SignatureError.
    """
    try:
        members = json.loads(directory, object_pairs_hook=_object_of)["keys"]
        keys = {
            key_id(key): (key, float(jwk.get("nbf", at)), float(jwk.get("exp", math.inf)))
            for jwk in members
            if jwk.get("crv") == "Ed25519"
            for key in [Ed25519PublicKey.from_public_bytes(_bytes_of(jwk["x"]))]
        }
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise SignatureError("the directory is not a JSON Web Key Set") from None
    if thumbprint not in keys:
        raise SignatureError(f"the directory has no key {thumbprint}")
    key, begins, ends = keys[thumbprint]
    if not begins <= at < ends:
        raise SignatureError(f"the key {thumbprint} was not valid then, by its nbf or exp")
    return key


def _bytes_of(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse two members of one name, which parsers read differently."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("two members with one name")
    return members


def is_signed(hit: Hit) -> bool:
    """Return True if a request has a signature, valid or not."""
    return any(hit.header(name) is not None for name in _FIELDS)


def key_id(key: Ed25519PublicKey) -> str:
    """Return the thumbprint of a key: the key id in signatures (RFC 7638, RFC 8037 A.3)."""
    x = _base64url(key.public_bytes_raw())
    jwk = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": x}, separators=(",", ":"))
    return _base64url(sha256(jwk.encode()).digest())


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _is_string(hit: Hit, name: str) -> bool:
    """Return True if a header is a single string of structured fields (RFC 9651 3.3.3)."""
    try:
        item = http_sf.parse(", ".join(hit.header_values(name)).encode("ascii"), tltype="item")
    except ValueError:
        return False
    return isinstance(item, tuple) and isinstance(item[0], str)


def _dictionary(hit: Hit, name: str) -> dict[str, Any]:
    """Return the members of a header that is a dictionary (RFC 9651 3.2), else SignatureError."""
    text = ", ".join(hit.header_values(name))
    try:
        return dict(http_sf.parse(text.encode("ascii"), tltype="dictionary"))  # type: ignore[arg-type]
    except ValueError:
        raise SignatureError(f"{name} is not a dictionary of structured fields") from None
