"""Why a request failed, as one sentence for the operator: which host, and what went wrong."""

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

from walsh_scrapy.exceptions import Unreachable
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.text import one_line
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.wire.tlserrors import causes, tls_error

if TYPE_CHECKING:
    from scrapy.http import Response

#: Most characters that are quoted of a server or a library.
LONGEST_QUOTE: Final = 200


def reason_of(error: BaseException | None, url: str) -> str:
    """Return why a request for ``url`` failed, as one line.

    The log shows it, and the state keeps it as the ``detail`` of a source.
    """
    host = host_of(url)
    if found := tls_error(error, host):
        return str(found)
    match error:
        case HttpError(response=response):
            return f"{host} answered {response.status}{_bad_redirect(response)}"
        case (IgnoreRequest() | NotAFeed() | Unreachable()) as own if reason := one_line(str(own)):
            return printable(reason)
        case DownloadConnectionRefusedError():
            return f"{host} refused the connection"
        case CannotResolveHostError():
            return f"the DNS has no address for {host}"
        case DownloadTimeoutError() as timeout:
            return f"{host} timed out: {_quote(timeout)}"
        case DownloadCancelledError() as cancelled:
            return f"the response from {host} is too large: {_quote(cancelled)}"
        case ResponseDataLossError():
            return f"the response from {host} ended before it was complete"
        case DownloadFailedError() as failed:
            *_, first = causes(failed)
            return f"no response from {host}: {_quote(first)}"
    quote = _quote(error)
    return f"{type(error).__name__}: {quote}" if quote else type(error).__name__


def words_of(error: Exception) -> str:
    """Return why a file could not be written: what the system says, else the error."""
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _bad_redirect(response: Response) -> str:
    """Return why a redirect was not followed; empty if the response is not a redirect."""
    if not 300 <= response.status < 400 or response.status == 304:
        return ""
    location = response.headers.get("Location")
    if location is None:
        return " without a Location"
    target = ascii(location.decode("latin-1"))[:LONGEST_QUOTE]
    return f" with a Location that cannot be requested: {target}"


def _quote(error: BaseException | None) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return printable(one_line(text) or "")[:LONGEST_QUOTE].rstrip(".") if error else ""
