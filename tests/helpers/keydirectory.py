"""A directory of public keys, as another library verifies signatures with it."""

import json
from base64 import urlsafe_b64decode

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import HTTPSignatureKeyResolver


class DirectoryKeys(HTTPSignatureKeyResolver):
    """The keys of a directory, read without our code."""

    def __init__(self, directory):
        self.keys = json.loads(directory)["keys"]

    def resolve_public_key(self, key_id):
        (jwk,) = [jwk for jwk in self.keys if jwk["kid"] == key_id]
        return Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(jwk["x"] + "="))
