"""What the record says: requests, denials, acts and runs. Times are epoch seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from walsh_scrapy.policy.blocklist import Blocklist
    from walsh_scrapy.policy.robots import Rules

DAY = 86_400.0
#: Seconds by which two times of the record may differ from what the ledger measured. A duration is
#: measured by a clock that never jumps, a moment by one that is slewed to the true time.
CLOCK = 0.05


class Sent(NamedTuple):
    """A row of `requests`, with its columns in their order."""

    id: int
    sent_at: float
    host: str
    url: str
    gates: str
    status: int | None
    seconds: float
    error: str
    run: int | None
    purpose: str | None
    pause: float | None
    hold: float | None
    rule: str | None
    line: int | None
    robots: str | None
    robots_at: float | None
    blocklist: str | None
    robots_status: int | None
    redirected_by: str | None

    @property
    def ended(self) -> float:
        """When its exchange was over."""
        return self.sent_at + self.seconds

    @property
    def has_evidence(self) -> bool:
        """False for a row that an earlier version wrote (decision 33)."""
        return self.purpose is not None


class KeptBack(NamedTuple):
    """A row of `denials`, with its columns in their order."""

    id: int
    at: float
    host: str
    url: str
    gate: str
    reason: str
    run: int | None
    rule: str | None
    line: int | None
    robots: str | None
    robots_at: float | None
    blocklist: str | None
    robots_status: int | None
    redirected_by: str | None


class Kept(NamedTuple):
    """A row of `entries`, with its columns in their order."""

    key: str
    page_key: str | None
    own_key: str
    title_key: str | None
    source: str
    kind: str
    first_seen: float
    item: str  #: JSON
    run: int | None


class Act(NamedTuple):
    """What the operator did to a host (decision 31)."""

    at: float
    host: str
    act: str


class RunFacts(NamedTuple):
    """The settings of a run that an audit needs."""

    user_agent: str
    ua_token: str
    blocklist_url: str
    blocklist_schema_url: str
    serial: bool
    scope: str


class Run(NamedTuple):
    """One run: when it began, and its settings."""

    begun: float
    facts: RunFacts


class Documents(Protocol):
    """The copies that decided, by their names; None if a copy is no longer kept."""

    def rules(self, name: str, token: str) -> Rules | None:
        """Return the rules of a robots.txt for a product token."""

    def blocklist(self, name: str) -> Blocklist | None:
        """Return a list that was in force."""

    def blocklist_error(self, name: str) -> str:
        """Return why a list is invalid by the bundled schema; "" if it is valid."""
