"""Why a request brought nothing, as one sentence for the operator: what went wrong, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
)
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.text import one_line
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.wire.tlserrors import causes, tls_error

if TYPE_CHECKING:
    from scrapy.http import Response

#: What servers and libraries say is repeated so far.
LONGEST_WORDS: Final = 200


def reason_of(error: BaseException | None, url: str) -> str:
    """Say in one line why a request for ``url`` failed, as an operator would put it."""
    host = host_of(url)
    if trouble := tls_error(error, host):
        return str(trouble)
    match error:
        case HttpError(response=response):
            return f"{host} answered {response.status}{_leading(response)}"
        case DownloadConnectionRefusedError():
            return f"{host} refused the connection"
        case CannotResolveHostError():
            return f"the DNS knows no address of {host}"
        case DownloadTimeoutError() as slow:
            return f"{host} took too long: {_words(slow)}"
        case DownloadCancelledError():
            return f"the answer of {host} is longer than may be read"
        case ResponseDataLossError():
            return f"the answer of {host} broke off before its end"
        case DownloadFailedError() as failed:
            *_, first = causes(failed)
            return f"no answer of {host}: {_words(first)}"
        case (IgnoreRequest() | NotAFeed()) as told if said := one_line(str(told)):
            return said
        case other:
            words = _words(other)
            return f"{type(other).__name__}: {words}" if words else type(other).__name__


def _leading(response: Response) -> str:
    """Say where an answer leads that nobody could follow; nothing if it is no redirect."""
    if not 300 <= response.status < 400 or response.status == 304:
        return ""
    location = response.headers.get("Location")
    if location is None:
        return " without saying where to go"
    target = ascii(location.decode("latin-1"))[:LONGEST_WORDS]
    return f", which leads nowhere that can be asked: {target}"


def _words(error: BaseException | None) -> str:
    return (one_line(str(error)) or "")[:LONGEST_WORDS].rstrip(".") if error else ""
