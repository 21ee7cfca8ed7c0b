"""What a page of the loopback web answers, with or without a fault."""

import gzip
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Literal, TypeAlias

from walsh_scrapy.testing.hit import Headers, Hit

_FINAL: Final = re.compile(rb"(?:^|\r\n\r\n)HTTP/1\.[01] ([2-9][0-9]{2})")


class Fault(Enum):
    """How a response can fail on the wire."""

    RESET = "reset"  #: the connection is reset, without a response
    CLOSE = "close"  #: the connection is closed as the request has come, without a response
    TRUNCATE = "truncate"  #: Content-Length is that of the whole body, but only half of it is sent


@dataclass(frozen=True, slots=True)
class Reply:
    """One response.

    With an `etag` or a `last_modified` it becomes a 304 for a request that echoes it exactly.
    `If-Modified-Since` is ignored if `If-None-Match` was sent (RFC 9110 13.1.3).
    """

    body: bytes | str = b""
    status: int = 200
    content_type: str | None = "text/plain; charset=utf-8"
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = field(default_factory=tuple)
    etag: str | None = None
    last_modified: str | None = None
    delay: float = 0.0  #: seconds before the first byte
    drip: float = 0.0  #: seconds over which the body is sent
    gzip: bool = False  #: compress the body if the request accepts it
    fault: Fault | None = None

    def to(self, hit: Hit) -> "Reply":
        """Return the reply to this request: itself, a 304, or itself compressed."""
        if self._fresh_for(hit):
            return replace(self, status=304, body=b"", content_type=None)
        if self.gzip and "gzip" in (hit.header("Accept-Encoding") or ""):
            return self._compressed()
        return self

    def content(self) -> bytes:
        """Return the body as bytes, text in UTF-8."""
        return self.body.encode() if isinstance(self.body, str) else self.body

    def header_pairs(self) -> Headers:
        """Return all headers but Date and Content-Length; `headers` override the other fields."""
        given = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
        pairs = tuple(given)
        fields = (
            ("Content-Type", self.content_type),
            ("ETag", self.etag),
            ("Last-Modified", self.last_modified),
        )
        names = {name.lower() for name, _ in pairs}
        own = ((k, v) for k, v in fields if v is not None and k.lower() not in names)
        return (*own, *pairs)

    def _fresh_for(self, hit: Hit) -> bool:
        etag = hit.header("If-None-Match")
        if etag is not None:
            return etag == self.etag
        since = hit.header("If-Modified-Since")
        return since is not None and since == self.last_modified

    def _compressed(self) -> "Reply":
        extra = (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
        packed = gzip.compress(self.content(), mtime=0)
        return replace(self, body=packed, headers=(*self.header_pairs(), *extra), gzip=False)


@dataclass(frozen=True, slots=True)
class Raw:
    """A response byte by byte, for what no `Reply` says: the numbers are pauses in seconds.

    The log has the status of the first final response in it, and no headers.
    """

    pieces: Sequence[bytes | float]
    then: Literal["close", "keep", "reset"] = "close"  #: what becomes of the connection

    @property
    def status(self) -> int:
        """The status of the first response that is no interim one (1xx), or 0."""
        data = b"".join(piece for piece in self.pieces if isinstance(piece, bytes))
        found = _FINAL.search(data)
        return int(found[1]) if found else 0

    def steps(self) -> list[tuple[float, bytes]]:
        """Return the bytes, each with the seconds to wait before them."""
        steps, pause = list[tuple[float, bytes]](), 0.0
        for piece in self.pieces:
            if isinstance(piece, bytes):
                steps.append((pause, piece))
                pause = 0.0
            else:
                pause += piece
        return [*steps, (pause, b"")] if pause or not steps else steps


#: What a path answers: a reply, its body, pages for successive hits (the last one repeats), or a
#: function from the hit to a page. The function runs in the server's thread and must not block.
Page: TypeAlias = "Reply | Raw | str | bytes | Sequence[Page] | Callable[[Hit], Page]"


def redirect(location: str, status: int = 301) -> Reply:
    """Return a redirect to `location`, which is sent unchanged."""
    return Reply(status=status, headers={"Location": location}, content_type=None)


def reply_of(page: Page, hit: Hit) -> Reply | Raw:
    """Return the reply of the page to this hit; `hit.number` selects one of a sequence."""
    while not isinstance(page, Reply | Raw):
        if isinstance(page, str | bytes):
            page = Reply(page)
        elif callable(page):
            page = page(hit)
        else:
            page = page[min(hit.number, len(page)) - 1]
    return page.to(hit) if isinstance(page, Reply) else page
