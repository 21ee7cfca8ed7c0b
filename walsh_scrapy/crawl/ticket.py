"""The ticket of a request: what the parts of this add-on know about it (decision 30).

A ticket is frozen, and lies in ``request.meta``; a part with a new fact gives the request another
one. The visit in it is shared by all requests for one declared source, redirects included.

Scrapy, spiders and middlewares of others copy requests together with their ``meta``, and may write
anything into it. So a ticket is valid for one URL and method, and until the response to the request
has come. It is valid for retries and for the copies that a scheduler makes. It is not valid for a
request for another URL, nor for one that a callback makes with the ``meta`` of the response. It is
never written to a ``JOBDIR``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from weakref import ref

from walsh_scrapy.exceptions import VisitTimeout
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import MAX_VISIT_SECONDS, VisitTime
from walsh_scrapy.policy.urls import without_dot_segments
from walsh_scrapy.state.evidence import NO_EVIDENCE, Evidence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.http import Headers, Response
    from twisted.python.failure import Failure

    from walsh_scrapy.policy.robots.copy import RobotsCopy
    from walsh_scrapy.state.records import LlmsTxtRecord, SourceRecord


#: Bytes of a validator that is kept. Servers refuse a request whose head is too long.
MAX_VALIDATOR_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Validators:
    """ETag and Last-Modified of a response: opaque bytes, for its URL only."""

    url: str
    etag: bytes | None
    last_modified: bytes | None

    @classmethod
    def from_response(cls, response: Response) -> Validators:
        """Read the validators of a response, byte for byte; drop one that is too long to send."""
        etag = response.headers.get("ETag") or b""
        last_modified = response.headers.get("Last-Modified") or b""
        return cls(
            response.url,
            etag if 0 < len(etag) <= MAX_VALIDATOR_BYTES else None,
            last_modified if 0 < len(last_modified) <= MAX_VALIDATOR_BYTES else None,
        )

    @classmethod
    def from_record(cls, record: SourceRecord | LlmsTxtRecord | RobotsCopy) -> Validators | None:
        """Return the stored validators of a document, or None."""
        url = record.validator_url
        return None if url is None else cls(url, record.etag, record.last_modified)


class Hop(NamedTuple):
    """A redirect that our middleware followed: the URL that redirected, and its status."""

    url: str
    status: int


#: Scrapy's flag of a response whose body is not complete.
DATA_LOSS: Final = "dataloss"


#: Our value of Scrapy's ``dont_retry``: RetryMiddleware is not to send a request again whose host
#: cannot be reached. It is removed afterwards, because it is no choice of the project.
NOT_REACHED: Final = "not reached"


class Visit(Protocol):
    """What belongs together in a crawl of declared sources: the requests for one source.

    Whoever makes the first request puts one into its ticket (`set_visit`); redirects and retries
    keep it. A request without a visit is the project's own. An object never changes: a method
    returns another one.
    """

    @property
    def time(self) -> VisitTime:
        """The time that the exchanges of the visit take. It is limited with a subject alone."""

    @property
    def subject(self) -> str | None:
        """The URL of the source, which identifies the visit; None if no outcome is recorded.

        With a subject the host is owned until `Hosts.end_visit`, a deferral is not counted as that
        of a request, and the log of requests names the source.
        """

    @property
    def delay(self) -> float:
        """The minimum delay in seconds at any host to which the visit leads; 0 for none."""

    @property
    def needs_end(self) -> bool:
        """Whether a document that is cut off is none, unless ``may_have_ended`` is True for it."""

    def may_have_ended(self, body: bytes) -> bool:
        """Return True if the end of a document seems to be in the body."""

    def readable(self, content_type: str) -> bool:
        """Return False for a Content-Type of which the body is not downloaded."""

    def max_bytes(self, content_type: str) -> int | None:
        """Return how many bytes of a body are read; None for all."""

    def typed(self, content_type: str, *, is_readable: bool) -> Visit:
        """Return the visit after the head of a response has come."""

    def redirected(self, response: Response, now: float) -> Visit:
        """Return the visit after a redirect that is followed; ``now`` is in epoch seconds."""


@dataclass(eq=False, slots=True)
class Delivery:
    """One try to fetch robots.txt, the blocklist or its schema.

    The request and its copies share it, so it is found although a project replaces the request.
    It is written where the download handler and our middlewares are called.
    """

    request: Request  #: the one that was handed to the download handler last
    limits: Mapping[str, Any]  #: limits in ``meta`` that hold whatever a project writes there
    is_conditional: bool = False  #: our validators were sent
    received: int = 0  #: bytes of the body in the last download
    has_come: bool = False  #: the download handler returned a response, complete or not
    response: Response | None = None  #: a copy of the last one
    is_cut_off: bool = False  #: a listener of the project stopped its download
    error: Exception | None = None  #: of the download handler or of our middlewares


class Ticket(NamedTuple):
    """The facts of our parts about a request. The default is a target without any."""

    # Route: its purpose, and its way here.
    rank: Rank = Rank.TARGET
    hops: tuple[Hop, ...] = ()  #: the redirects that led here, the first one first
    for_blocklist: bool = False  #: a robots.txt that a request for the blocklist needs
    #: Its host must have public addresses only, and so must whatever its response leads to.
    public_only: bool = False
    validators: Validators | None = None  #: sent if the request is for their URL
    delivery: Delivery | None = None  #: of robots.txt, the blocklist or its schema
    # Pacing: when it may be sent, and the course of its exchange.
    robots_interval: float | None = None  #: seconds: Crawl-delay or Request-rate, the larger
    #: The redirect that led here, or its own answer, asked for a wait until then (Retry-After), by
    #: the monotonic clock.
    not_before: float = 0.0
    scheduled: bool = False  #: it came from our scheduler; only of requests that have no host
    settled: bool = False  #: it begins to pass the middlewares with this URL
    released: bool = False  #: PacingMiddleware let it out, so that it may be sent
    #: Until when it may be sent and answered, by the clock that counts suspension.
    until: float = math.inf
    reached: bool = False  #: it reached the downloader, so its host answers from here on
    handed: bool = False  #: it came to a download handler at least once
    on_new_connection: bool = False  #: an earlier try broke: an idle connection might break too
    #: Seconds that its connection took, without those in which the process stood still.
    connecting: float = 0.0
    sent: float | None = None  #: when it was sent last, by the monotonic clock
    stalled: float = 0.0  #: seconds for which the process had stood still until then
    answered: int | None = None  #: the status of its answer, which may have been cut off later
    from_gateway: bool = False  #: its answer is a 502, 503 or 504 that a proxy may have made
    seconds: float = 0.0  #: that its exchange took, with its connection
    hold: float = 0.0  #: seconds for which its host was on hold when its exchange ended
    attempt: int = 0  #: retries so far after a refusal
    # Evidence: the decisions so far, for the request log.
    answers: Mapping[str, str] = MappingProxyType({})  #: of the gates so far, by their names
    evidence: Evidence = NO_EVIDENCE
    visit: Visit | None = None
    #: The time of the visit of a source. A robots.txt has that of the request that needs it.
    visit_time: VisitTime | None = None

    @property
    def serves_blocklist(self) -> bool:
        """Whether the request is for the blocklist, or for a document that this needs."""
        return self.rank is Rank.OPERATOR or self.for_blocklist


_NONE: Final = Ticket()
_KEY: Final = "walsh_ticket"


class _Life:
    """The shared part of a request and its copies: the one that got a response."""

    def __init__(self) -> None:
        self.answered: ref[Request] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Issued:
    """A ticket with that for which it is valid."""

    url: str
    method: str
    life: _Life
    ticket: Ticket

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None where a request is written down, because anybody could have written it."""
        return type(None), ()


def _issued_to(request: Request, *, even_after: bool = False) -> _Issued | None:
    """Return the valid ticket of a request; ``even_after`` its response, the last one.

    This is called a hundred times for each request.
    """
    issued: object = request.meta.get(_KEY)
    if type(issued) is not _Issued:  # a subclass could claim anything
        return None
    if issued.url != request.url or issued.method != request.method:
        return None
    answered = issued.life.answered
    return issued if even_after or answered is None or answered() is request else None


def _issue(request: Request, ticket: Ticket) -> None:
    issued = _issued_to(request)
    life = issued.life if issued else _Life()
    request.meta[_KEY] = _Issued(request.url, request.method, life, ticket)


def ticket_of(request: Request) -> Ticket:
    """Return the ticket of a request."""
    issued = _issued_to(request)
    return issued.ticket if issued else _NONE


def note(request: Request, **changes: Any) -> None:  # noqa: ANN401 - fields of Ticket
    """Change the ticket of a request; copies made before keep theirs."""
    _issue(request, ticket_of(request)._replace(**changes))


def note_answer(request: Request, gate: str, answer: str, **evidence: Any) -> None:  # noqa: ANN401
    """Add a gate's answer and its evidence (fields of Evidence), for the log of requests."""
    ticket = ticket_of(request)
    evidence_now = replace(ticket.evidence, **evidence) if evidence else ticket.evidence
    note(request, answers={**ticket.answers, gate: answer}, evidence=evidence_now)


def carry_ticket(request: Request, following: Request) -> None:
    """Give the ticket of a request to the one that takes its place, whatever URL that has."""
    following.meta.pop(_KEY, None)
    if issued := _issued_to(request):
        _issue(following, issued.ticket)


def renew_ticket(request: Request, ticket: Ticket) -> None:
    """Give a request a ticket that is valid although a response to a copy of it has come."""
    request.meta.pop(_KEY, None)
    _issue(request, ticket)


def ticket_after(request: Request) -> Ticket:
    """Return the last ticket of a request, also if a response to it or to a copy has come."""
    issued = _issued_to(request, even_after=True)
    return issued.ticket if issued else _NONE


def copy_of(request: Request, url: str | None = None) -> Request:
    """Return a copy, for another URL if given; its ticket outlives the ticket of the request."""
    copy = request.replace(url=url or request.url)
    carry_ticket(request, copy)
    return copy


def end_ticket(request: Request) -> None:
    """Record that a request got its response: from now on the tickets of copies are not valid."""
    if issued := _issued_to(request):
        issued.life.answered = ref(request)


def repeats(request: Request, following: Request) -> bool:
    """Return True if a request is a copy of an earlier one: same URL, method and ticket."""
    copied = following.meta.get(_KEY)
    issued = _issued_to(request)
    return (
        issued is not None
        and type(copied) is _Issued
        and copied.life is issued.life
        and (following.url, following.method) == (issued.url, issued.method)
    )


def rank_of(request: Request) -> Rank:
    """Return the purpose of a request."""
    return ticket_of(request).rank


def hops_of(request: Request) -> tuple[Hop, ...]:
    """Return the redirects that led to a request, the first one first."""
    return ticket_of(request).hops


def evidence_of(request: Request) -> Evidence:
    """Return the redirect and the decisions that led to a request, for the request log."""
    ticket = ticket_of(request)
    if not ticket.hops:
        return ticket.evidence
    return replace(ticket.evidence, redirected_from=ticket.hops[-1].url)


def first_url(request: Request) -> str:
    """Return the URL before all redirects."""
    hops = hops_of(request)
    return hops[0].url if hops else request.url


def resolved(request: Request) -> Request | None:
    """Return a request without dot segments in its URL; None if it has none."""
    url = without_dot_segments(request.url)
    if url == request.url:
        return None
    return copy_of(request, url)


def request_of(outcome: Response | Failure) -> Request:
    """Return the request of a response or failure; Scrapy sets it on both."""
    request: Request = outcome.request  # type: ignore[union-attr, assignment]
    return request


def visit_of(request: Request) -> Visit | None:
    """Return the visit that a request belongs to, if any."""
    return ticket_of(request).visit


def set_visit(request: Request, visit: Visit) -> None:
    """Make a request part of a visit."""
    note(request, visit=visit, visit_time=visit.time if visit.subject else None)


def limit_to_visit(request: Request, timeout: float) -> float:
    """Return the time limit of a request in seconds: ``timeout``, or what its visit has left.

    Raises VisitTimeout if its visit has no time left.
    """
    time = ticket_of(request).visit_time
    if time is None or timeout <= time.remaining:
        return timeout
    check_visit_time(request)
    return time.remaining


def has_visit_time(request: Request) -> bool:
    """Return False if the visit that a request belongs to has no time left (decision 46)."""
    time = ticket_of(request).visit_time
    return time is None or time.remaining > 0.0


def check_visit_time(request: Request) -> None:
    """Raise VisitTimeout if the visit that a request belongs to has no time left."""
    if not has_visit_time(request):
        raise VisitTimeout(MAX_VISIT_SECONDS)


def subject_of(request: Request) -> str | None:
    """Return the URL of the source whose visit a request belongs to; None for any other."""
    visit = visit_of(request)
    return visit.subject if visit else None


def restore_limits(request: Request) -> None:
    """Set the limits of a request for a document again, because a project may change them."""
    delivery = ticket_of(request).delivery
    for name, limit in delivery.limits.items() if delivery else ():
        request.meta.pop(name, None)
        if limit is not None:
            request.meta[name] = limit


def content_type_of(headers: Headers) -> str:
    """Return the Content-Type of an answer; empty if it has none."""
    return (headers.get("Content-Type") or b"").decode("latin-1")


def links_of(response: Response) -> list[str]:
    """Return the `Link` headers of a response."""
    return [value.decode("latin-1") for value in response.headers.getlist("Link")]
