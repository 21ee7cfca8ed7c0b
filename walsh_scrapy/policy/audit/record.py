"""The parts of the state that an audit reads: its rows, and the documents that decided.

Times are epoch seconds. Each row has columns in the order of its table.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeVar

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.audit.clocks import SetClocks
from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.policy.robots.secondreader import SecondReader
from walsh_scrapy.policy.urls import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from walsh_scrapy.policy.audit.checklist import Findings
    from walsh_scrapy.policy.robots import Rules

DAY: Final = 86_400.0
#: The doubt about a request without a run in the state.
NO_RUN: Final = "names no run that is recorded"
#: The doubt about a request whose rules cannot be read again.
NO_COPY: Final = "names a copy of robots.txt that is not kept"
#: The doubt about a request whose robots.txt has no request in the log.
NO_FETCH: Final = "names a robots.txt whose request is not recorded"
#: The doubt about a request that may have been sent, by a run that was killed then.
END_UNKNOWN: Final = "was sent, end unknown"
#: The doubt about the next one to its host.
AFTER_UNKNOWN: Final = "came next after a request whose end is unknown"
#: Copies of robots.txt and of the blocklist in memory: a list of a million domains takes 300 MiB.
_MOST_RULES: Final = 256
_MOST_LISTS: Final = 2
#: The name in a URL: after a user name, before a port.
_NAME: Final = re.compile(r"[a-z]+://(?:[^/?#]*@)?([^/?#:]*)")
_Read = TypeVar("_Read")


class LoggedRequest(NamedTuple):
    """A row of `requests`."""

    id: int
    requested_at: float  #: when it was allowed to go out
    host: str  #: or the domain, if domains are paced
    url: str
    gates: str
    status: int | None
    duration: float | None  #: seconds; None if its end is not known, or has not come
    monotonic: float  #: seconds of a clock that is never set, at the end of its exchange
    error: str
    run: int | None
    purpose: str  #: "target", "robots" or "blocklist"
    delay: float  #: seconds: the delay in force before it
    hold: float  #: seconds for which its answer put its host on hold; 0 for none
    #: Seconds that its answer asked for; None without a Retry-After that could be read.
    retry_after: float | None
    rule: str | None
    line: int | None
    robots: str | None  #: of a request for robots.txt: the copy that counted after it
    robots_at: float | None
    blocklist: str | None
    blocklist_at: float | None
    robots_status: int | None
    redirected_from: str | None
    source: str | None  #: the declared source that a target was for
    connect_duration: float = 0.0  #: seconds from `requested_at` until it was sent

    @property
    def ended(self) -> float:
        """When its exchange was over; `requested_at` if that is not known."""
        return self.requested_at + (self.connect_duration or 0.0) + (self.duration or 0.0)

    @property
    def is_open(self) -> bool:
        """Whether its end is not known: it is out, or its run was killed, maybe before it went."""
        return self.duration is None


class LoggedDenial(NamedTuple):
    """A row of `denials`."""

    id: int
    denied_at: float
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
    blocklist_at: float | None
    robots_status: int | None
    redirected_from: str | None


class EntryRow(NamedTuple):
    """A row of `entries`."""

    key: str
    kind: str
    first_seen: float
    item: str  #: JSON


class SharedPage(NamedTuple):
    """An entry whose page and id, or page and title, another entry has too."""

    key: str


class ReportedRun(NamedTuple):
    """The new entries of a run that has ended."""

    id: int
    ended_at: float
    reported: int  #: by its summary
    stored: int  #: rows of `entries` that it is the first run of


class LoggedOverride(NamedTuple):
    """A row of `overrides`: an operator's change of a host (decision 31)."""

    made_at: float
    host: str
    override: str


class Bot(NamedTuple):
    """The bot of an audit: the identity that an installation declares (R1)."""

    user_agent: str
    ua_token: str


class RunFacts(NamedTuple):
    """The settings of a run that an audit needs."""

    user_agent: str
    ua_token: str
    blocklist_url: str
    blocklist_schema_url: str
    pace_by: str
    robots_unreachable: str
    scope: str
    declared: str  #: the document of its declared sources, by its hash; "" if it declared none
    serial: bool = True
    backoff_base: float = 0.0  #: seconds; 0 if not known
    backoff_max: float = 0.0
    force: bool = False  #: whether it visited sources that were not due

    @property
    def is_of_another_bot(self) -> bool:
        """Whether the run had another identity than Walsh-Research (decision 24)."""
        return self.ua_token != UA_TOKEN

    @property
    def list_urls(self) -> set[str]:
        """Where the blocklist and its schema are published."""
        return {url for url in (self.blocklist_url, self.blocklist_schema_url) if url}


class RunTerms(NamedTuple):
    """One run: its time in epoch seconds, and its settings."""

    started_at: float
    ended_at: float | None  #: None while it goes on, and permanently if it was killed
    facts: RunFacts
    command: str = ""  #: that requested a URL by hand; "" for a crawl


class Documents:
    """The copies that decided, by their names; those used last stay in memory.

    ``copy`` returns the bytes of one, None if it is no longer kept. So does each of these.
    """

    def __init__(self, copy: Callable[[str], bytes | None]) -> None:
        def kept(most: int, read: Callable[[bytes], _Read]) -> Callable[[str], _Read | None]:
            return lru_cache(most)(lambda name: None if (it := copy(name)) is None else read(it))

        self.second_reader = kept(_MOST_RULES, SecondReader)

        @lru_cache(_MOST_RULES)
        def rules(name: str, token: str) -> Rules | None:
            return None if (it := copy(name)) is None else RobotsTxt.parse(it).rules_for(token)

        self.rules = rules


class Basis(NamedTuple):
    """The basis of the checks of the requests."""

    runs: Mapping[int, RunTerms]  #: by their numbers
    overrides: Sequence[LoggedOverride]
    #: Hosts of the blocklist: for it, and for the robots.txt that it needs, delays and holds count
    #: for a day at most (decision 14).
    list_hosts: frozenset[str]
    documents: Documents
    since: float = 0.0  #: the epoch second since which the state is whole
    moved: Mapping[str, str] = MappingProxyType({})  #: where sources have moved to, by their URLs
    clocks: SetClocks = SetClocks()

    def run(self, row: LoggedRequest) -> RunTerms | None:
        """Return the run of a row; None if the state has none."""
        return None if row.run is None else self.runs.get(row.run)

    def is_for_list(self, sent: LoggedRequest) -> bool:
        """Return True for a request for the blocklist, or for the robots.txt that it needs."""
        is_robots = sent.purpose == "robots" and host_of(sent.url) in self.list_hosts
        return is_robots or sent.purpose == "blocklist"

    def rules(self, row: LoggedRequest) -> Rules | None:
        """Return the rules that decided, for the product token of the run; None if not known."""
        run = self.run(row)
        if run is None or row.robots is None:
            return None
        return self.documents.rules(row.robots, run.facts.ua_token)

    def robots_delay(self, row: LoggedRequest) -> float:
        """Return the delay of the copy in seconds, by the slower of two readings (decision 35).

        0 if it has none, or is not known.
        """
        run, rules = self.run(row), self.rules(row)
        reader = None if row.robots is None else self.documents.second_reader(row.robots)
        if run is None or rules is None or reader is None:
            return 0.0
        return max(rules.crawl_delay or 0.0, reader.delay(run.facts.ua_token))


class Check:
    """One check of an audit: it sees the rows of one table, in the order that it names."""

    rows: ClassVar[type]
    order: ClassVar[Literal["time", "host"]] = "time"  #: by times; or host by host, each by times

    def __init__(self, findings: Findings, basis: Basis) -> None:
        self._findings = findings
        self._basis = basis

    def see(self, row: Any) -> None:  # noqa: ANN401 - of the class that ``rows`` names
        """Check one row."""
        raise NotImplementedError

    def end(self) -> None:
        """Check all rows together."""
