"""What a verifier finds in a published directory of keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from walsh_scrapy.policy.signing.keys import DIRECTORY_PATH, DIRECTORY_TYPE
from walsh_scrapy.policy.signing.verification import (
    BadDirectory,
    BadSignature,
    KeySet,
    check_proof,
)
from walsh_scrapy.policy.timestamps import format_moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from walsh_scrapy.policy.signing.keys import PublicKey


class Finding(NamedTuple):
    """One thing that a verifier looks at."""

    is_sound: bool
    text: str

    def __str__(self) -> str:
        return f"  {'ok ' if self.is_sound else 'BAD'}  {self.text}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request for a directory."""

    url: str
    status: int
    fields: Mapping[str, str]  #: by their names in lower case
    body: bytes


def directory_url(url: str) -> str:
    """Return where the directory of a Signature-Agent is: itself, or the well-known path."""
    parts = urlsplit(url)
    if parts.path in ("", "/") and not parts.query:
        return parts._replace(path=DIRECTORY_PATH, fragment="").geturl()
    return url


def findings(answer: Answer, host: str, key_id: str, now: float) -> Iterator[Finding]:
    """Yield what is sound and what is not.

    ``host`` is the Host field of the request, ``key_id`` the thumbprint of the key that signs our
    requests, "" if there is none; ``now`` is in epoch seconds.
    """
    is_found = answer.status == 200
    yield Finding(is_found, f"status {answer.status}" + ("" if is_found else "; has to be 200"))
    if not is_found:
        return
    kind = answer.fields.get("content-type", "").partition(";")[0].strip().lower()
    if urlsplit(answer.url).path == DIRECTORY_PATH:
        is_right = kind == DIRECTORY_TYPE
        hint = "" if is_right else f"; has to be {DIRECTORY_TYPE}"
        yield Finding(is_right, f"Content-Type {kind or '(none)'}{hint}")
    try:
        known = KeySet.from_body(answer.body)
    except BadDirectory as error:
        yield Finding(False, f"the directory {error}")
        return
    if not known.keys:
        yield Finding(False, "the directory has no Ed25519 key")
    for key in known.keys.values():
        yield _proof(key, host, answer, now)
    if key_id:
        is_there = key_id in known.keys
        said = "is" if is_there else "is not"
        yield Finding(is_there, f"the key of WALSH_SIGNING_KEY, {key_id}, {said} published here")


def _proof(key: PublicKey, host: str, answer: Answer, now: float) -> Finding:
    try:
        until = check_proof(key, host, answer.fields, answer.body, now)
    except BadSignature as error:
        return Finding(False, f"key {key.thumbprint}: {error}")
    moment = format_moment(until)
    return Finding(True, f"key {key.thumbprint}: signed, until {moment}")
