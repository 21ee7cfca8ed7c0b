"""Why a host is not requested now, and when its sources are due (R8; decisions 20, 31)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from walsh_scrapy.crawl.blocklist import load_local_list
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.pacing import LONGEST_FOR_BLOCKLIST, PaceBy
from walsh_scrapy.policy.robots.copy import RobotsFile
from walsh_scrapy.policy.urls import canonical_url, host_of, origin_of
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.sources.source import host_pauses
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.tools.hosts import hold_why
from walsh_scrapy.tools.sources.overview import (
    declared_source,
    known_sources,
    next_visit,
    undeclared,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.audit.record import LoggedDenial
    from walsh_scrapy.policy.pacing import HostTimes
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.log import Log
    from walsh_scrapy.state.records import SourceRecord
    from walsh_scrapy.tools.sources.overview import NextVisit


@dataclass(frozen=True, slots=True)
class HostTarget:
    """One document of the host that a source asks for, or asked for once."""

    url: str  #: at this host, also if the source is declared elsewhere and moved here
    record: SourceRecord
    due: NextVisit
    denial: LoggedDenial | None  #: why it was kept back, if that is its outcome
    is_disallowed: bool  #: whether its robots.txt, as we know it now, denies it

    def words(self, outlook: Outlook) -> str:
        """Return when it is asked for next, or why not."""
        if outlook.is_listed:
            return "not asked for while its host is on our blocklist"
        if self.due.rule == "undeclared":
            return "no source of ours any more"
        if self.due.rule == "gone":
            return "gone for good (410), so it is not asked for"
        if self.record.address != self.record.url == self.url:
            return "moved for good, so it is asked for where it moved to"
        outcome = self.record.outcome
        last = f"{outcome}; " if outcome.startswith("denied") else ""
        if last and self.record.status is not None:  # of a redirect: no rule of this site denies it
            last = f"what it redirects to is {last}"
        elif self.denial is not None:
            last = f"{outcome}: {self.denial.reason}; "
        only = ", and then only if its robots.txt allows it" if self.is_disallowed else ""
        if self.due.at is not None and not self.due.is_due:
            return f"{last}not due before {format_moment(self.due.at)} ({self.due.why}){only}"
        if outlook.ready_at is not None:
            return f"{last}due, and deferred until its host may be asked{only}"
        return f"{last}due, so the next run looks at it{only}"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What stands between us and the next request to a host. Times are epoch seconds."""

    at: float  #: the moment of which this is true
    times: HostTimes  #: of the host
    hold_until: float | None  #: None if the host is not on hold
    ready_at: float | None  #: None if the host may be requested now
    delay: float  #: seconds between two requests that the operator asks for, 0 for none
    targets: tuple[HostTarget, ...]
    is_declared: bool | None  #: whether any is a source's; None if that is not known
    is_listed: bool  #: whether the host is on a blocklist now
    is_out: bool  #: whether a request is out, or a crawl was killed before the end of its last one
    has_list: bool  #: whether our blocklist is published there
    domain: str | None  #: that is paced as one; None if each host is paced alone
    url: str | None  #: the only document that this is about, in its canonical form

    def lines(self) -> Iterator[str]:
        """Yield sentences about the host, without its targets."""
        if self.has_list:
            longest = format_seconds(LONGEST_FOR_BLOCKLIST)
            yield f"our blocklist is published here: no hold delays its requests by over {longest}"
        if self.is_listed:
            what = "nothing but that list" if self.has_list else "nothing"
            yield f"on our blocklist, so {what} is requested while it is listed"
        if self.hold_until is not None:
            yield f"on hold until {format_moment(self.hold_until)}: {self.hold_why}"
        elif self.ready_at is not None:
            why = "as a request is out, or its crawl was killed" if self.is_out else "by its delay"
            yield f"not requested before {format_moment(self.ready_at)}, {why}"
        elif self.is_declared is None and not self.is_listed:
            yield "no hold and no delay keeps us from it; each gate is asked again then"
        if self.delay:
            yield f"{format_seconds(self.delay)} at least between two requests, by our own choice"
        if self.is_declared is False:
            where = "here" if self.url is None else "with this URL"
            was = " any more" if self.targets else ""
            yield f"no source of ours is declared {where}{was}"
        if not self.is_listed:
            yield "a redirect of another site can lead us here too"

    @property
    def hold_why(self) -> str | None:
        """What began the hold; None if the host is not on hold."""
        if self.hold_until is None:
            return None
        shared = f"{self.domain} is paced as one, and " if self.domain else ""
        return f"{shared}{hold_why(self.times)}; it began at {format_moment(self.times.hold_since)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the outlook for ``--json``: times as RFC 3339 in UTC, durations in seconds."""
        return {
            "at": rfc3339(self.at),
            "hold_until": rfc3339(self.hold_until),
            "hold_why": self.hold_why,
            "not_before": rfc3339(self.ready_at),
            "delay": self.delay,
            "declared": self.is_declared,
            "listed": self.is_listed,
            "targets": [
                {
                    "url": target.url,
                    "why": target.words(self),
                    "outcome": target.record.outcome,
                    "due": target.due.is_due,
                    "due_at": rfc3339(target.due.at),
                    "due_rule": target.due.rule,
                }
                for target in self.targets
            ],
        }


def look_ahead(
    state: State,
    log: Log,
    options: Options,
    url: str,
    sources: Sequence[Source] | None,
    wanted: str | None,
) -> Outlook:
    """Return what stands between us and the next request to the host of a URL.

    ``sources`` are those declared now; None if they are not known. ``wanted`` is the canonical URL
    of the only document to tell of; None for all.
    """
    host, paced = host_of(url), options.pace_by.unit(url)
    found = state.hosts.find(paced)
    times, now = found.times, found.now
    known = () if sources is None else _targets(state, log, options, host, sources, now)
    targets = tuple(each for each in known if wanted in (None, canonical_url(each.url)))
    pauses = host_pauses(sources or (), options.pace_by.unit)
    return Outlook(
        at=now,
        times=times,
        hold_until=times.hold_until if found.hold else None,
        ready_at=times.ready_at() if found.reason else None,
        delay=max(times.operator_delay, pauses.get(paced, 0.0)),
        targets=targets,
        is_declared=None
        if sources is None
        else any(target.due.rule != "undeclared" for target in targets),
        is_listed=_is_listed(state, options, url),
        is_out=found.reason == "in flight",
        has_list=host in {host_of(options.blocklist_url), host_of(options.blocklist_schema_url)},
        domain=paced if options.pace_by is PaceBy.DOMAIN else None,
        url=wanted,
    )


def _is_listed(state: State, options: Options, url: str) -> bool:
    """Return True if the published list that was adopted last has a host, or the operator's own."""
    published = state.blocklist.find(options.blocklist_url)
    adopted = Blocklist.of_text(published.adopted) if published else Blocklist.EMPTY
    return bool(adopted.blocks(url) or load_local_list(options.blocklist_file).blocks(url))


def _targets(
    state: State, log: Log, options: Options, host: str, sources: Sequence[Source], now: float
) -> Iterator[HostTarget]:
    """Yield the documents at a host: those of declared sources, then those of earlier ones."""
    known = known_sources(state, sources, options, now)
    denials = {canonical_url(each.url): each for each in log.denials(TimeSpan(until=now), host)}
    found = [(each, declared_source(each, known)) for each in sources]
    others = [(None, each) for each in undeclared(sources, known)]
    for source, each in (*found, *others):
        record = each.record
        # Elsewhere it may be another site's: of that, only what moved here is told (decision 36).
        url = next((url for url in (record.url, record.address) if host_of(url) == host), None)
        if url is None:
            continue
        due = next_visit(each, source, options.min_revisit, now)
        is_denied = record.outcome.startswith("denied")
        denial = denials.get(canonical_url(url)) if is_denied else None
        yield HostTarget(url, record, due, denial, _is_disallowed(state, options, url, now))


def _is_disallowed(state: State, options: Options, url: str, now: float) -> bool:
    """Return True if the last robots.txt of a URL's site denies it, or what stands for it does."""
    copy = state.robots.find(origin_of(url))
    if copy is None:
        return False
    file = RobotsFile.read(copy, options.ua_token, options.robots_unreachable, now)
    return not file.rules.verdict(url).allowed
