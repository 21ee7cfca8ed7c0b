"""Marks: what our gates and queues know of one request, as one object in ``request.meta``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.http import Response
    from twisted.python.failure import Failure

    from walsh_scrapy.politeness.prerequisites import Fetch

_KEY: Final = "walsh_marks"


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


@dataclass(frozen=True, slots=True)
class Marks:
    """Each gate sets its own; a request without marks is a target."""

    rank: Rank = Rank.TARGET
    fetch: Fetch | None = None  #: what a request for robots.txt or the blocklist belongs to
    validators: Validators | None = None  #: sent if the request is for their URL
    robots_interval: float | None = None  #: seconds: Crawl-delay or Request-rate, the larger
    hold: float = 0.0  #: seconds for which its host was on hold when its exchange ended
    attempt: int = 0  #: how often it was made again after a refusal
    answers: Mapping[str, str] = field(default_factory=dict)  #: of each gate so far, by its name


_NONE: Final = Marks()


def marks_of(request: Request) -> Marks:
    """Return the marks of a request."""
    marks: Marks = request.meta.get(_KEY, _NONE)
    return marks


def mark(request: Request, **changes: Any) -> None:  # noqa: ANN401 - fields of Marks
    """Change some marks of a request; copies made before keep theirs."""
    request.meta[_KEY] = replace(marks_of(request), **changes)


def note_answer(request: Request, gate: str, answer: str) -> None:
    """Note a gate's answer for the record of requests."""
    mark(request, answers={**marks_of(request).answers, gate: answer})


def rank_of(request: Request) -> Rank:
    """Return what a request is for."""
    return marks_of(request).rank


def request_of(outcome: Response | Failure) -> Request:
    """Return the request that a response or failure came of; Scrapy sets it on both."""
    request: Request = outcome.request  # type: ignore[union-attr, assignment]
    return request
