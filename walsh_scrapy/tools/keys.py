"""``scrapy keys``: keys in files, and what a verifier finds in the directory that has them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from scrapy import Request

from walsh_scrapy.policy.signing.keys import DIRECTORY_PATH, DIRECTORY_TYPE, PrivateKey
from walsh_scrapy.policy.signing.verification import (
    BadDirectory,
    BadSignature,
    KeySet,
    check_proof,
)
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.runtime.failures import words_of
from walsh_scrapy.runtime.signing import UnusableKey, read_key
from walsh_scrapy.sources import Source
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.command import NO_OUTPUT, no_response_reason
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from scrapy.http import Response
    from twisted.python.failure import Failure

    from walsh_scrapy.policy.signing.keys import PublicKey


class Check(NamedTuple):
    """One thing that a verifier looks at."""

    is_sound: bool
    text: str

    def __str__(self) -> str:
        return f"  {'ok ' if self.is_sound else 'BAD'}  {self.text}"


@dataclass(frozen=True, slots=True)
class DirectoryResponse:
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


def checks(response: DirectoryResponse, host: str, key_id: str, now: float) -> Iterator[Check]:
    """Yield what is sound and what is not.

    ``host`` is the Host field of the request, ``key_id`` the thumbprint of the key that signs our
    requests, "" if there is none; ``now`` is in epoch seconds.
    """
    is_found = response.status == 200
    yield Check(is_found, f"status {response.status}" + ("" if is_found else "; has to be 200"))
    if not is_found:
        return
    kind = response.fields.get("content-type", "").partition(";")[0].strip().lower()
    if urlsplit(response.url).path == DIRECTORY_PATH:
        is_right = kind == DIRECTORY_TYPE
        hint = "" if is_right else f"; has to be {DIRECTORY_TYPE}"
        yield Check(is_right, f"Content-Type {kind or '(none)'}{hint}")
    try:
        known = KeySet.from_body(response.body)
    except BadDirectory as error:
        yield Check(False, f"the directory {error}")
        return
    if not known.keys:
        yield Check(False, "the directory has no Ed25519 key")
    for key in known.keys.values():
        yield _proof(key, host, response, now)
    if key_id:
        is_there = key_id in known.keys
        said = "is" if is_there else "is not"
        yield Check(is_there, f"the key of WALSH_SIGNING_KEY, {key_id}, {said} published here")


def _proof(key: PublicKey, host: str, response: DirectoryResponse, now: float) -> Check:
    try:
        until = check_proof(key, host, response.fields, response.body, now)
    except BadSignature as error:
        return Check(False, f"key {key.thumbprint}: {error}")
    moment = format_moment(until)
    return Check(True, f"key {key.thumbprint}: signed, until {moment}")


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
        raise CommandError(f"{name} cannot be written: {words_of(error)}") from None
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(key.pem)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CommandError(f"{name} cannot be written: {words_of(error)}") from None
    return key.public.thumbprint


def keys_of(names: Iterable[str]) -> list[PrivateKey]:
    """Return the keys in files, each once. Raises CommandError."""
    try:
        keys = [read_key(Path(name)) for name in names]
    except UnusableKey as error:
        raise CommandError(str(error)) from None
    return list({key.public.thumbprint: key for key in keys}.values())


#: A verifier looks at every status, and follows no redirect: this does both.
_META: Final = {"handle_httpstatus_all": True}


class DirectoryRequest:
    """A directory that is asked for: its response, or why there is none."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.response: DirectoryResponse | None = None
        self.trouble = "no request was made; see the log"


class KeysSpider(DeclaringSpider):
    """Requests one directory through every gate. ``sources`` makes it a declared target."""

    name = "keys"
    custom_settings = NO_OUTPUT

    def __init__(self, directory: DirectoryRequest, **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.directory = directory
        self.sources = (Source(directory.url),)

    async def start(self) -> AsyncIterator[Any]:
        """Request the directory, uncompressed: Content-Digest is of the bytes that are sent."""
        yield Request(
            self.directory.url,
            errback=self.failed,
            headers={"Accept": DIRECTORY_TYPE, "Accept-Encoding": "identity"},
            meta=dict(_META),
            dont_filter=True,
        )

    def parse(self, response: Response) -> None:
        """Keep the response."""
        fields = {
            name.decode("latin-1").lower(): b", ".join(values).decode("latin-1")
            for name, values in response.headers.items()
        }
        self.directory.response = DirectoryResponse(
            response.url, response.status, fields, response.body
        )

    def failed(self, failure: Failure) -> None:
        """Keep the reason."""
        self.directory.trouble = no_response_reason(failure.value, self.directory.url)
