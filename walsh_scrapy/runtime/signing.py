"""The key that signs requests, read at the start, and the signature of one request."""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from walsh_scrapy.options import BadSetting
from walsh_scrapy.runtime.messages import host_field

if TYPE_CHECKING:
    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.signing.keys import PrivateKey
    from walsh_scrapy.policy.signing.requests import RequestSigner

#: A PEM file of an Ed25519 key has 119 bytes; what is larger is something else.
_MOST_BYTES: Final = 16_384
_NONCE_BYTES: Final = 32
#: Without a signature, and over plain http, a request has none of these, whoever set them.
_UNSIGNED: Final = {b"Signature-Agent": None, b"Signature-Input": None, b"Signature": None}


class UnusableKey(ValueError):
    """A file is no key that may be used; the message is a sentence that names the file."""


class Signer:
    """Signs the requests of a crawl."""

    def __init__(self, signer: RequestSigner) -> None:
        self._signer = signer
        self.key_id = signer.key.public.thumbprint

    def fields(self, url: str, now: float) -> dict[bytes, bytes | None]:
        """Return the fields of one request that is sent now, in epoch seconds.

        Each call has another nonce. None stands for a field that is not sent: over plain http
        anybody on the way could use the signature.
        """
        parts = urlsplit(url)
        if parts.scheme != "https":
            return dict(_UNSIGNED)
        nonce = b64encode(token_bytes(_NONCE_BYTES)).decode("ascii")
        fields = self._signer.fields(host_field(parts.netloc), now, nonce)
        return {name.encode("ascii"): value.encode("ascii") for name, value in fields.items()}


def read_signer(options: Options) -> Signer | None:
    """Return the signer of a crawl, None without a key.

    Raises BadSetting for a key that cannot be read, is of another type, or may be read by others.
    """
    if not options.signing_key:
        return None
    # Crawls that sign nothing do not load what signs: 7 ms.
    from walsh_scrapy.policy.signing.requests import RequestSigner  # noqa: PLC0415

    try:
        key = read_key(Path(options.signing_key))
    except UnusableKey as error:
        raise BadSetting(f"WALSH_SIGNING_KEY: {error}") from None
    return Signer(
        RequestSigner(key=key, agent=options.signature_agent, form=options.signature_form)
    )


def read_key(path: Path) -> PrivateKey:
    """Return the private key in a file. Raises UnusableKey."""
    from walsh_scrapy.policy.signing.keys import BadKey, PrivateKey  # noqa: PLC0415 - as above

    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            pem = file.read(_MOST_BYTES) if stat.S_ISREG(mode) else b""
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise UnusableKey(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UnusableKey(
            f"{path} is open to other users of this machine (mode {stat.S_IMODE(mode):o}); "
            f"run: chmod 600 {path}"
        )
    try:
        return PrivateKey.from_pem(pem)
    except BadKey as error:
        raise UnusableKey(f"{path} {error}") from None
