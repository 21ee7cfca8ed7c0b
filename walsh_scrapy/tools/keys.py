"""``scrapy keys``: keys in files, and what a verifier finds in the directory that has them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from scrapy import Request

from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.signing.directory import DIRECTORY_PATH, DIRECTORY_TYPE
from walsh_scrapy.policy.signing.keys import PrivateKey
from walsh_scrapy.policy.signing.verification import (
    BadDirectory,
    BadSignature,
    KeySet,
    check_proof,
)
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.signing import UnusableKey, read_key
from walsh_scrapy.sources import Source
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.command import NO_OUTPUT
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from scrapy.http import Response
    from twisted.python.failure import Failure

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


_MODE: Final = 0o600


def new_key(name: str) -> str:
    """Write a new private key to a new file, for its owner only; return its thumbprint.

    Raises CommandError if the file exists or cannot be written.
    """
    key, path = PrivateKey.generate(), Path(name)
    try:
        # A file or a symbolic link that is there already is never opened.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        raise CommandError(f"{name} exists, and a key is never overwritten: name a new file") from (
            None
        )
    except (OSError, ValueError) as error:
        raise CommandError(f"{name} cannot be written: {_said(error)}") from None
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(key.pem)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CommandError(f"{name} cannot be written: {_said(error)}") from None
    return key.public.thumbprint


def keys_of(names: Iterable[str]) -> list[PrivateKey]:
    """Return the keys in files, each once. Raises CommandError."""
    try:
        keys = [read_key(Path(name)) for name in names]
    except UnusableKey as error:
        raise CommandError(str(error)) from None
    return list({key.public.thumbprint: key for key in keys}.values())


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


#: A verifier looks at every status, and follows no redirect: this does both.
_META: Final = {"handle_httpstatus_all": True}


class Asked:
    """A directory that is asked for: its answer, or why there is none."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer: Answer | None = None
        self.trouble = "no request was made; see the log"


class KeysSpider(DeclaringSpider):
    """Requests one directory through every gate. ``sources`` makes it a declared target."""

    name = "keys"
    custom_settings = NO_OUTPUT

    def __init__(self, asked: Asked, **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.asked = asked
        self.sources = (Source(asked.url),)

    async def start(self) -> AsyncIterator[Any]:
        """Request the directory, uncompressed: Content-Digest is of the bytes that are sent."""
        yield Request(
            self.asked.url,
            errback=self.failed,
            headers={"Accept": DIRECTORY_TYPE, "Accept-Encoding": "identity"},
            meta=dict(_META),
            dont_filter=True,
        )

    def parse(self, response: Response) -> None:
        """Keep the answer."""
        fields = {
            name.decode("latin-1").lower(): b", ".join(values).decode("latin-1")
            for name, values in response.headers.items()
        }
        self.asked.answer = Answer(response.url, response.status, fields, response.body)

    def failed(self, failure: Failure) -> None:
        """Keep the reason."""
        error = failure.value
        if isinstance(error, Denied):
            self.asked.trouble = f"denied by {error.gate}: {error.reason}"
        elif isinstance(error, RequestDeferred):
            self.asked.trouble = str(error)
        else:
            self.asked.trouble = reason_of(error, self.asked.url)
