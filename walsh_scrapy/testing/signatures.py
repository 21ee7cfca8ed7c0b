"""Whether a request that a web received is signed, as a verifier of Web Bot Auth finds it."""

from walsh_scrapy.policy.signing.verification import (
    BadDirectory,
    BadSignature,
    KeySet,
    verify_request,
)
from walsh_scrapy.testing.hit import Hit


def verify_signature(hit: Hit, directory: bytes | str, *, now: float | None = None) -> str:
    """Return the thumbprint of the key that signed a request (RFC 9421, tag `web-bot-auth`).

    `directory` is the JSON Web Key Set that the crawler's operator publishes. `now`, in epoch
    seconds, is when the signature is verified: by default the moment at which the request came. A
    signature that was created later does not verify, nor does one that has expired. Raises
    AssertionError, with the reason.
    """
    if hit.scheme != "https":
        raise AssertionError(f"{hit.url} was requested over http, where nothing is signed")
    path, _, query = hit.path.partition("?")
    derived = {
        "@authority": hit.header("Host") or "",
        "@method": hit.method,
        "@path": path,
        "@query": f"?{query}",
        "@request-target": hit.path,
        "@scheme": hit.scheme,
        "@target-uri": hit.url,
    }
    fields = {name.lower(): ", ".join(hit.header_values(name)) for name, _ in hit.headers}
    body = directory.encode() if isinstance(directory, str) else directory
    try:
        keys = KeySet.from_body(body)
        return verify_request(derived, fields, keys, hit.wall if now is None else now).thumbprint
    except (BadDirectory, BadSignature) as error:
        raise AssertionError(f"{hit.url}: {error}") from None
