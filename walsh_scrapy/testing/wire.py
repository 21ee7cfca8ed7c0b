"""HTTP/1.1 as bytes: what a request says, and the head of an answer."""

import re
import time
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from walsh_scrapy.testing.hit import DEFAULT_PORTS, Headers, Hit

_ABSOLUTE: Final = re.compile(r"(https?)://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY: Final = re.compile(r"(?:.*@)?(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?")


class MalformedRequestError(ValueError):
    """What came is no HTTP/1.1 request."""


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request, nothing interpreted yet."""

    method: str
    target: str
    version: str
    headers: Headers

    def value(self, name: str) -> str:
        """Return the first header of that lower-case name, or an empty string."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    @property
    def keeps_alive(self) -> bool:
        """Whether the client means to send another request on this connection."""
        return self.version == "HTTP/1.1" and self.value("connection").lower() != "close"


def parse_request(head: bytes) -> Request:
    """Read a request line and headers, up to the empty line. Bytes stay what they are: Latin-1."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match first.split(" "):
        case [method, target, "HTTP/1.1" | "HTTP/1.0" as version]:
            pairs = (line.partition(":") for line in lines)
            headers = tuple((name, value.strip(" \t")) for name, _, value in pairs)
            return Request(method, target, version, headers)
    raise MalformedRequestError(f"no request line: {first!r}")


def hit_of(request: Request, client: int, scheme: str = "http") -> Hit:
    """Return a hit that starts now, addressed as the request's target or its Host says.

    `scheme` is that of a target which has none of its own.
    """
    scheme, host, port, path = _address(request, scheme)
    now = time.monotonic()
    return Hit(
        started=now,
        ended=float("inf"),
        wall=time.time(),
        method=request.method,
        scheme=scheme,
        host=host,
        port=port,
        path=path,
        headers=request.headers,
        client=client,
    )


def render_head(status: int, headers: Headers) -> bytes:
    """Return the status line and the headers, Date among them."""
    names = {name.lower() for name, _ in headers}
    dated = headers if "date" in names else (("Date", formatdate(usegmt=True)), *headers)
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in dated)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _address(request: Request, scheme: str) -> tuple[str, str, int, str]:
    """Return scheme, host, port and path. An absolute target outranks Host (RFC 9112, 3.2.2)."""
    if request.method == "CONNECT":
        return ("https", *_authority(request.target, "https"), "")
    if absolute := _ABSOLUTE.fullmatch(request.target):
        scheme, authority, path = absolute.groups()
        scheme = scheme.lower()
        return (scheme, *_authority(authority, scheme), path if path[:1] == "/" else f"/{path}")
    return (scheme, *_authority(request.value("host"), scheme), request.target)


def _authority(text: str, scheme: str) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    if not match or not match[1]:
        raise MalformedRequestError(f"no host: {text!r}")
    return match[1].lower().rstrip("."), int(match[2] or DEFAULT_PORTS[scheme])
