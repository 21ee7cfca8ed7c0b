"""The directory of public keys, and its signed response (the draft's "Directory Format").

One signature by each key proves that its owner publishes it under this host (the draft's
"Possession Proof on the Directory Response").
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.signing.requests import (
    BACKDATED,
    input_field,
    signature_base,
    signature_field,
    signed_authority,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.policy.signing.keys import PrivateKey, PublicKey
    from walsh_scrapy.policy.signing.requests import Component, Parameters

DIRECTORY_PATH: Final = "/.well-known/http-message-signatures-directory"
DIRECTORY_TYPE: Final = "application/http-message-signatures-directory+json"
DIRECTORY_TAG: Final = "http-message-signatures-directory"
#: What each proof covers: the host that was asked, and the keys.
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
