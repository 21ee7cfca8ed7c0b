"""The tries that a crawl waits for after refusals, so that an operator can be told (R5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from walsh_scrapy.runtime.context import Context


class Retry(NamedTuple):
    """The next try of a refused request: its number, of how many, and when (monotonic seconds)."""

    number: int
    most: int
    at: float
    why: str  #: what the host did: `answered 503`
    for_blocklist: bool

    def told(self, now: float) -> str:
        """Return when it comes, in words: `try 3 of 5 in 8 s`."""
        return f"try {self.number} of {self.most} in {format_seconds(self.at - now)}"


class Retries:
    """The next try of each host that refused a request."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._by_host: dict[str, Retry] = {}

    @classmethod
    def of(cls, context: Context) -> Retries:
        """Return the one of a crawl."""
        return context.part(cls, lambda: cls(context))

    def note(self, host: str, retry: Retry) -> None:
        """Keep the next try of a host."""
        self._by_host[host] = retry

    def find(self, host: str) -> Retry | None:
        """Return the try that a host is waited for, or None."""
        retry = self._by_host.get(host)
        return retry if retry is not None and retry.at > self._clock.monotonic() else None

    def of_blocklist(self) -> Retry | None:
        """Return the try of the blocklist, or of its host's robots.txt, that all wait for."""
        now = self._clock.monotonic()
        waited_for = (each for each in self._by_host.values() if each.for_blocklist)
        return next((each for each in waited_for if each.at > now), None)
