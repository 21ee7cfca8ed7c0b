"""Why a request got no usable response. An errback finds the exception in ``failure.value``.

Most are an ``IgnoreRequest``, which Scrapy does not log as an error of the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest, ResponseDataLossError

if TYPE_CHECKING:
    from scrapy.http import Response


class Denied(IgnoreRequest):
    """A gate denied the request, so it was not sent.

    ``gate`` is the name of the gate, as in the stats; ``reason`` is a sentence for people.
    """

    def __init__(self, gate: str, reason: str) -> None:
        super().__init__(reason)
        self.gate = gate
        self.reason = reason


class RequestDeferred(IgnoreRequest):
    """The host asks for a wait longer than ``WALSH_MAX_WAIT``, so a later run sends the request.

    ``until`` is when it may be sent, in epoch seconds. A deferred request has not failed.
    """

    def __init__(self, until: float, reason: str) -> None:
        super().__init__(reason)
        self.until = until


class HostDeferred(RequestDeferred):
    """The host failed too often in this run, so its other requests are left to a later run.

    ``refused`` is 429 or 503 if the host answered that, else None.
    """

    def __init__(self, until: float, reason: str, refused: int | None = None) -> None:
        super().__init__(until, reason)
        self.refused = refused


class RobotsUnavailable(HostDeferred):
    """No robots.txt came from the host, so nothing else may be requested there."""


class StillDue(RequestDeferred):
    """This worker has a problem, or ends; other workers may go on with the host."""


class StateUnavailable(StillDue):
    """The state database failed, so no request can be paced or recorded.

    This is no failure of the host or the source. ``until`` is the time of the failure.
    """


class MachineTrouble(StillDue):
    """This machine cannot connect: no file descriptor, no route, or no DNS resolver.

    This is no failure of the host or the source. ``until`` is the time of the problem.
    """


class ProxyTrouble(MachineTrouble):
    """The proxy of this machine reaches no host: five of them got nothing but 502, 503 or 504."""


class StoodStill(MachineTrouble):
    """This process was suspended for so long that its request may no longer be in flight.

    Another worker may already have requested the host. It is also raised for a request that is in
    flight for some seconds after the process was told to end.
    """


class Unreachable(Exception):
    """A host cannot be reached: its name has no address, or connecting or TLS failed.

    Each subclass is also an exception of Scrapy, such as ``DownloadTimeoutError``.
    """

    #: True if this binds one origin (scheme, host and port), and not the other ports of the host.
    is_of_origin = False
    #: True if a TCP connection was made before the failure.
    is_connected = False

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(reason)
        self.host = host
        self.reason = reason


class TooSlow(DownloadTimeoutError):
    """The body of a response came too slowly: under 100 bytes a second for 20 s."""


class BadFraming(ResponseDataLossError):
    """The body of a response had far more framing than data, or a chunk line was too long."""


class VisitTimeout(IgnoreRequest):
    """The requests of one visit took too long together, so the visit has failed (decision 46).

    ``max_seconds`` is the maximum. The host of the last request is not to blame, because it may
    have had little time to answer.
    """

    def __init__(self, max_seconds: float) -> None:
        super().__init__(f"the requests of this visit took {max_seconds:g} s, the maximum")


class NotDue(IgnoreRequest):
    """A source was requested before it is due again, at ``due_at`` in epoch seconds (R8)."""

    def __init__(self, due_at: float) -> None:
        super().__init__("this source was visited lately and is not due yet")
        self.due_at = due_at


class AlreadyRead(IgnoreRequest):
    """The document of a source was already fetched, for another source (R8, R9).

    ``requested_at`` is when it was fetched, and ``due_at`` when it is due again, both in epoch
    seconds. ``problem`` says why the document was useless; it is empty if it was useful.
    """

    def __init__(self, url: str, requested_at: float, due_at: float, problem: str) -> None:
        super().__init__(f"{url} was already fetched for another source")
        self.url = url
        self.requested_at = requested_at
        self.due_at = due_at
        self.problem = problem


class TooLate(IgnoreRequest):
    """A request was not sent, because another worker may own its host by then."""


class NotReached(IgnoreRequest):
    """A proxy says that it did not reach a host, but it may reach none: it is asked once more."""


class NotYet(IgnoreRequest):
    """The host is not ready yet, so the coroutine that sends the request waits once more (R4)."""


class HasCome(IgnoreRequest):
    """robots.txt or the blocklist need not be fetched: another crawl has just done so (R2, R3)."""


class NotDelivered(IgnoreRequest):
    """The project's own code prevented the download of robots.txt or the blocklist.

    A middleware answered the request or raised an exception, or a signal handler stopped the
    download. ``remedy`` is a sentence that says what to change in the project.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


class NotModified(IgnoreRequest):
    """The server answered a conditional request with 304: there is no new data (R7)."""

    def __init__(self, response: Response) -> None:
        super().__init__("304 Not Modified")
        self.response = response


class BadAnswer(IgnoreRequest):
    """A response whose body cannot be used. Its status and headers, such as Retry-After, can."""

    def __init__(self, response: Response, reason: str) -> None:
        super().__init__(reason)
        self.response = response
