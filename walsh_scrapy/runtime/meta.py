"""What our parts tell each other about a request, in its ``meta``; copies and redirects keep it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.http import Response
    from twisted.python.failure import Failure

    from walsh_scrapy.sources import Source

RANK: Final = "walsh_rank"
SOURCE: Final = "walsh_source"
VALIDATORS: Final = "walsh_validators"
INTERVAL: Final = "walsh_interval"
ATTEMPT: Final = "walsh_attempt"
HELD: Final = "walsh_held"
GATES: Final = "walsh_gates"
UNWANTED: Final = "walsh_unwanted"
READABLE: Final = "walsh_readable"
ANNOUNCED: Final = "walsh_announced"
PASSED: Final = "walsh_passed"
MOVE: Final = "walsh_move"
GONE: Final = "walsh_gone"  #: the page of this visit is gone for good (410)
INDEX: Final = "walsh_index"
ERRAND: Final = "walsh_errand"
IDLE: Final = "walsh_idle"  #: an asyncio.Event, set while a request waits in our scheduler

#: Scrapy's flag of a response whose body is not all there.
DATA_LOSS: Final = "dataloss"


@dataclass(frozen=True, slots=True)
class Validators:
    """What a server said of its document: opaque bytes, for that one URL only (decision 17)."""

    url: str
    etag: bytes | None
    last_modified: bytes | None

    @classmethod
    def of(cls, response: Response) -> Validators:
        """Read the validators of a response, byte for byte."""
        headers = response.headers
        etag, last_modified = headers.get("ETag"), headers.get("Last-Modified")
        return cls(response.url, etag or None, last_modified or None)


def index(request: Request) -> str | None:
    """Return the address of the llms.txt that a request is for, wherever redirects led it."""
    found: str | None = request.meta.get(INDEX)
    return found


def announced(request: Request) -> tuple[str, ...]:
    """Return what the page of a visit announced as its markdown: that is declared with it."""
    found: tuple[str, ...] = request.meta.get(ANNOUNCED, ())
    return found


def asked_by(answer: Response | Failure) -> Request:
    """Return the request behind what came of it; Scrapy sets it on both."""
    request: Request = answer.request  # type: ignore[union-attr, assignment]
    return request


def rank(request: Request) -> Rank:
    """Return what a request is for; what nobody marked is a target."""
    found: Rank = request.meta.get(RANK, Rank.TARGET)
    return found


def source(request: Request) -> Source | None:
    """Return the declared source that a request is made for, if any."""
    found: Source | None = request.meta.get(SOURCE)
    return found


def note(request: Request, gate: str, answer: str) -> None:
    """Keep a gate's answer for the wire log."""
    request.meta[GATES] = {**gates(request), gate: answer}


def gates(request: Request) -> Mapping[str, str]:
    """Return what each gate answered so far."""
    found: Mapping[str, str] = request.meta.get(GATES, {})
    return found
