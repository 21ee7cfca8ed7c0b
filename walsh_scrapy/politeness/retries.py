"""The tries that a crawl waits for after refusals, so that an operator can be told (R5)."""

from __future__ import annotations

from typing import NamedTuple

from walsh_scrapy.policy.wording import format_seconds


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
    """The next try of each host that refused a request. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._by_host: dict[str, Retry] = {}

    def note(self, host: str, retry: Retry) -> None:
        """Keep the next try of a host."""
        self._by_host[host] = retry

    def find(self, host: str, now: float) -> Retry | None:
        """Return the try for which a host waits at ``now``, or None."""
        retry = self._by_host.get(host)
        return retry if retry is not None and retry.at > now else None

    def of_blocklist(self, now: float) -> Retry | None:
        """Return the try of the blocklist, or of its host's robots.txt, that all wait for."""
        waited_for = (each for each in self._by_host.values() if each.for_blocklist)
        return next((each for each in waited_for if each.at > now), None)
