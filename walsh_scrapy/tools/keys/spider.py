"""The spider of ``scrapy keys check``: it requests a directory of keys, as a verifier would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy import Request

from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.signing.keys import DIRECTORY_TYPE
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.sources import Source
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.keys.check import Answer
from walsh_scrapy.tools.mayfetch.spider import NO_OUTPUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response
    from twisted.python.failure import Failure

#: A verifier looks at every status, and follows no redirect: this does both.
_META: Final = {"handle_httpstatus_all": True}


class Asked:
    """A directory that is asked for: its answer, or why there is none."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer: Answer | None = None
        self.trouble = "no request was made; see the log"


class KeysSpider(DeclaringSpider):
    """Requests one directory through every gate. ``sources`` makes it a declared target."""

    name = "keys"
    custom_settings = NO_OUTPUT

    def __init__(self, asked: Asked, **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.asked = asked
        self.sources = (Source(asked.url),)

    async def start(self) -> AsyncIterator[Any]:
        """Request the directory, uncompressed: Content-Digest is of the bytes that are sent."""
        yield Request(
            self.asked.url,
            errback=self.failed,
            headers={"Accept": DIRECTORY_TYPE, "Accept-Encoding": "identity"},
            meta=dict(_META),
            dont_filter=True,
        )

    def parse(self, response: Response) -> None:
        """Keep the answer."""
        fields = {
            name.decode("latin-1").lower(): b", ".join(values).decode("latin-1")
            for name, values in response.headers.items()
        }
        self.asked.answer = Answer(response.url, response.status, fields, response.body)

    def failed(self, failure: Failure) -> None:
        """Keep the reason."""
        error = failure.value
        if isinstance(error, Denied):
            self.asked.trouble = f"denied by {error.gate}: {error.reason}"
        elif isinstance(error, RequestDeferred):
            self.asked.trouble = str(error)
        else:
            self.asked.trouble = reason_of(error, self.asked.url)
