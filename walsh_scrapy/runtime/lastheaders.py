"""The headers that our gates answer for, set again where a request is sent (decision 30)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requestmeta import marks_of
from walsh_scrapy.runtime.startup import in_force

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.settings import BaseSettings

    from walsh_scrapy.runtime.context import Context

#: Headers that would link visits to each other, or carry credentials (R1, decision 16).
NEVER_SENT: Final = ("Cookie", "Cookie2", "Referer", "Authorization")


def conditions_of(request: Request) -> dict[str, bytes | None]:
    """Return both headers of a conditional request; None for one that is not sent (R7).

    Their values are the validators that were stored for the URL of the request.
    """
    known = marks_of(request).validators
    is_of_url = known is not None and known.url == request.url
    return {
        "If-None-Match": known.etag if known and is_of_url else None,
        "If-Modified-Since": known.last_modified if known and is_of_url else None,
    }


class LastHeaders:
    """What the identity gate and the conditional gate of a crawl demand of its requests.

    Where the crawl has a key, its signature too: of each request over https, at the moment at which
    it is sent. So a retry and a hop have their own, and no request is changed by it.
    """

    def __init__(self, settings: BaseSettings, context: Context) -> None:
        self._context = context
        self._identity: dict[bytes, bytes | None] = {}
        if in_force(settings, Gate.IDENTITY):
            user_agent = context.options.user_agent
            self._identity = {name.encode("ascii"): None for name in NEVER_SENT}
            self._identity[b"User-Agent"] = user_agent.encode("ascii")
        self._is_conditional = bool(in_force(settings, Gate.CONDITIONAL))

    def of(self, request: Request) -> Mapping[bytes, bytes | None]:
        """Return the header fields of a request by name; None for one that is not sent."""
        conditions = conditions_of(request) if self._is_conditional else {}
        last = self._identity | {name.encode("ascii"): conditions[name] for name in conditions}
        signer = self._context.signer
        if signer is not None:
            last |= signer.fields(request.url, self._context.clock.now())
        return last
