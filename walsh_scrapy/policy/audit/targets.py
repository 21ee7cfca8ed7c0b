"""Rows 1, 6, 7 and 9: identity, declared targets, entries (R1, R6, R7, R9)."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.audit.checklist import Finding, Kind
from walsh_scrapy.policy.audit.record import (
    NO_RUN,
    Check,
    EntryRow,
    LoggedRequest,
    MissingPart,
    ReportedRun,
    SharedPage,
)
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.urls import (
    MOST_ANNOUNCED,
    canonical_url,
    has_user_info,
    host_of,
    is_private_host,
)
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from walsh_scrapy.policy.audit.checklist import Findings
    from walsh_scrapy.policy.audit.record import Basis, Bot, RunFacts, RunTerms

_KINDS: Final = ("feed", "llms")
_DUMP: Final = "llms-full.txt"
_LLMSTXT: Final = "/llms.txt"
#: The doubts about a request.
_UNDECLARED: Final = "names a run whose declared sources are not kept"
_ANY: Final = "names a run that may follow links (WALSH_SCOPE)"
_MOVED: Final = "was requested where a source had moved to, which is not recorded"
_BEFORE: Final = "names a redirect that may be older than the state"


class Identity(Check):
    """Compares the User-Agent of each request's run, which the download handler sets on the wire.

    It is evidence for the requests that were sent while the run went on. That of Walsh-Research is
    exact. Another bot is known by its product token, and may change the text next to it.
    """

    rows = LoggedRequest

    def __init__(self, findings: Findings, basis: Basis, bot: Bot) -> None:
        super().__init__(findings, basis)
        self._bot = bot

    def see(self, sent: LoggedRequest) -> None:
        """Check one request."""
        lacking = NO_RUN if sent.run is None else ""
        self._findings.decide("1", self._findings_of(sent), lacking=lacking)

    def _findings_of(self, sent: LoggedRequest) -> Iterator[Finding]:
        run = self._basis.run(sent)
        if run is None:
            if sent.run is not None:
                yield Finding.of(Kind.UNKNOWN_RUN, sent, f"run {sent.run} is not recorded")
            return
        if not self._is_of(run.facts):
            what = f"run {sent.run} sent {run.facts.user_agent!r}"
            yield Finding.of(Kind.USER_AGENT, sent, what)
        ended = math.inf if run.ended_at is None else run.ended_at
        beyond = max(run.started_at - sent.requested_at, sent.requested_at - ended)
        if beyond > CLOCK_SKEW:
            what = f"{sent.url} was sent {format_seconds(beyond)} outside of run {sent.run}"
            yield Finding.of(Kind.OUTSIDE_RUN, sent, what, beyond, since=sent.requested_at)

    def _is_of(self, facts: RunFacts) -> bool:
        if self._bot.ua_token == UA_TOKEN:
            return facts.user_agent == self._bot.user_agent
        return facts.ua_token == self._bot.ua_token


class _Run:
    """The requests of a run so far."""

    def __init__(self) -> None:
        self.redirects: set[str] = set()  #: URLs that redirected
        self.hosts: defaultdict[str, set[str]] = defaultdict(set)  #: by source without a feed
        self.announced: defaultdict[str, set[str]] = defaultdict(set)  #: URLs, by such a source


class Targets(Check):
    """Checks whether the requested URLs are declared, or redirects of such.

    A run's sources are those that it declared when it began. Requests of a command by hand are
    counted, and not checked (decision 39).
    """

    rows = LoggedRequest

    def __init__(self, findings: Findings, basis: Basis) -> None:
        super().__init__(findings, basis)
        self._runs: dict[int, _Run] = {}
        # By source: where redirects led, in any run.
        self._led: defaultdict[str, set[str]] = defaultdict(set)

    def see(self, sent: LoggedRequest) -> None:
        """Check one request."""
        terms = self._basis.run(sent)
        if terms is None or sent.run is None:
            self._findings.decide("6", _forbidden(sent), lacking=NO_RUN)
            return
        run = self._run(sent.run, sent.requested_at)
        if terms.command:
            self._findings.count("6", asked_by_hand=1)
            self._findings.decide("", _forbidden(sent))
            return
        problem, lacking = self._check(sent, run, terms)
        findings = list[Finding]()
        if problem:
            what = f"{sent.url} {problem}"
            # The request that led here may have a later time.
            findings.append(Finding.of(Kind.UNDECLARED, sent, what, since=sent.requested_at))
        self._findings.decide("6", chain(_forbidden(sent), findings), lacking=lacking)
        if sent.status is not None and 300 <= sent.status < 400 and sent.status != 304:
            run.redirects.add(sent.url)

    def _check(self, sent: LoggedRequest, run: _Run, terms: RunTerms) -> tuple[str, str]:
        """Return the problem, and the doubt; "" for none."""
        if sent.redirected_from is not None:
            return self._led_here(sent, run, terms)
        if sent.purpose == "robots":
            return ("" if sent.url.endswith("/robots.txt") else "is not a robots.txt"), ""
        if sent.purpose == "blocklist":
            published = map(canonical_url, terms.facts.list_urls)
            is_the_list = canonical_url(sent.url) in published
            return ("" if is_the_list else "is neither the blocklist nor its schema"), ""
        if terms.facts.scope == "any":
            if not terms.facts.is_of_another_bot:
                return "", _ANY
            self._findings.waive("6", "this bot may follow links (WALSH_SCOPE)")
            return "", ""
        declared = self._basis.documents.declared(terms.facts.declared)
        if declared is None:
            return "", _UNDECLARED
        source = sent.url if sent.source is None else sent.source
        try:
            kind = declared.kind(source)
        except MissingPart:
            return "", _UNDECLARED
        return self._target(sent, run, source, kind)

    def _led_here(self, sent: LoggedRequest, run: _Run, terms: RunTerms) -> tuple[str, str]:
        """Check a request that a redirect led to."""
        if sent.redirected_from not in run.redirects:
            if terms.started_at < self._basis.since:
                return "", _BEFORE
            return "names a redirect that is not recorded", ""
        if is_private_host(host_of(sent.url)) and not _is_from_private(sent):
            return "is not public, and a redirect of a public host led there", ""
        if sent.source is not None:
            self._led[sent.source].add(sent.url)
            if sent.source in run.hosts:
                run.hosts[sent.source].add(host_of(sent.url))
        return "", ""

    def _target(
        self, sent: LoggedRequest, run: _Run, source: str, kind: str | None
    ) -> tuple[str, str]:
        """Check a request for a target of a source of this kind, None if it is not declared."""
        if kind is None:
            named = "is for no source" if sent.source is None else f"is for {source}"
            return f"{named}, which the run did not declare", ""
        addresses = {source}
        if sent.url != source:
            addresses |= {self._basis.moved.get(source, source), *self._led.get(source, ())}
        if kind == "llms":
            addresses |= {urljoin(each, _LLMSTXT) for each in addresses}
        if sent.url in addresses or _is_announced(sent, run, source):
            if kind == "llms":
                run.hosts[source].add(host_of(sent.url))
            return "", ""
        if "scope: moved" in sent.gates:  # the state has the last address only
            return "", _MOVED
        return f"is not declared by its source {source}", ""

    def _run(self, number: int, now: float) -> _Run:
        if number not in self._runs:
            for other in list(self._runs):
                ended = self._basis.runs[other].ended_at
                if ended is not None and ended < now - CLOCK_SKEW:
                    del self._runs[other]
            self._runs[number] = _Run()
        return self._runs[number]


def _is_announced(sent: LoggedRequest, run: _Run, source: str) -> bool:
    """Return True if the page of a source announced a URL: on the same server, and few of them."""
    is_named = "scope: announced" in sent.gates
    if not is_named or host_of(sent.url) not in run.hosts.get(source, ()):
        return False
    announced = run.announced[source]
    if len(announced) < MOST_ANNOUNCED:
        announced.add(sent.url)
    return sent.url in announced


def _is_from_private(sent: LoggedRequest) -> bool:
    """Return True if the host of a source is private: by its name or its addresses."""
    is_by_name = sent.source is None or is_private_host(host_of(sent.source))
    return is_by_name or "privatehosts: " in sent.gates


def _forbidden(sent: LoggedRequest) -> Iterator[Finding]:
    """Yield a finding for a URL that is never requested."""
    if has_user_info(sent.url):
        yield Finding.of(
            Kind.USER_INFO, sent, f"{host_of(sent.url)} was requested with a user name"
        )
    if sent.purpose == "target" and _DUMP in sent.url.lower():
        yield Finding.of(Kind.DUMP, sent, sent.url)


class Entries(Check):
    """Checks the entries of other people's pages.

    ``problem`` returns why an item may not be kept, "" if it may.
    """

    rows = EntryRow

    def __init__(
        self, findings: Findings, basis: Basis, problem: Callable[[Mapping[str, object]], str]
    ) -> None:
        super().__init__(findings, basis)
        self._problem = problem

    def see(self, entry: EntryRow) -> None:
        """Check one entry."""
        self._findings.count("6", entries=1)
        self._findings.decide("679", self._kept(entry))

    def _kept(self, entry: EntryRow) -> Iterator[Finding]:
        key, kind, first_seen = entry.key, entry.kind, entry.first_seen
        try:
            values = json.loads(entry.item)
            problem = self._problem(values) if isinstance(values, dict) else "it is not an item"
        except ValueError:
            problem = "its item is not JSON"
        if problem:
            yield Finding(Kind.CONTENT, "entries", key, first_seen, problem)
        if kind not in _KINDS:
            what = f"its kind is {kind!r}"
            yield Finding(Kind.SCRAPED, "entries", key, first_seen, what)


class Duplicates(Check):
    """Counts entries that are stored twice."""

    rows = SharedPage

    def see(self, entry: SharedPage) -> None:
        """Count an entry."""
        what = "another entry of its page has the same id or title"
        self._findings.add(Finding(Kind.DUPLICATE, "entries", entry.key, None, what))


class Reported(Check):
    """Checks the new entries of a run: an entry is new once, and names the run that found it."""

    rows = ReportedRun

    def see(self, run: ReportedRun) -> None:
        """Check one run."""
        again = run.reported - run.stored
        if again > 0:
            what = f"run {run.id} reported {run.reported} new entries, and {run.stored} were new"
            self._findings.add(
                Finding(Kind.REPORTED_AGAIN, "runs", run.id, run.ended_at, what, again)
            )
