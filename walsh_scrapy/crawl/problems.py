"""The failures of a crawl by their reasons, and until when its hosts are deferred."""

from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import ReasonGroups


class Problems:
    """The failures of a crawl by their reasons, and until when each host is deferred."""

    def __init__(self) -> None:
        self.failures = ReasonGroups()
        self.deferred: dict[str, float] = {}  #: by host: the earliest time, in epoch seconds

    def failed(self, url: str, reason: str) -> None:
        """Count a source that failed; ``reason`` is one sentence."""
        self.failures.add(host_of(url), reason)

    def defer(self, url: str, until: float) -> None:
        """Note that a request is deferred until a time in epoch seconds."""
        host = host_of(url)
        self.deferred[host] = min(until, self.deferred.get(host, until))
