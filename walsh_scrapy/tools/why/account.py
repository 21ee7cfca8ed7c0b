"""The request log of one host on one day, and its outlook (R8; decision 31)."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy import identity
from walsh_scrapy.crawl.blocklist import load_local_list
from walsh_scrapy.policy.audit.pace import CheckedRequest, GapCheck
from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.pacing import LONGEST_FOR_BLOCKLIST, PaceBy
from walsh_scrapy.policy.robots.copy import QuotedLine, RobotsFile, quote
from walsh_scrapy.policy.urls import canonical_url, host_of, origin_of, robots_url
from walsh_scrapy.policy.wording import count_of, format_day, format_seconds
from walsh_scrapy.programname import program_name
from walsh_scrapy.sources.source import host_delays
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.hosts import url_of
from walsh_scrapy.tools.why.nextvisit import declared_source, next_visit, undeclared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, Self

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.audit.record import LoggedDenial, LoggedRequest
    from walsh_scrapy.policy.pacing import HostTimes
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.hosts import Override
    from walsh_scrapy.state.log import Log
    from walsh_scrapy.state.records import SourceRecord
    from walsh_scrapy.state.runs import RunRecord
    from walsh_scrapy.tools.why.nextvisit import NextVisit

_PAGE: Final = re.compile(r"https?://[^\s;,)]+")
_MAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")


@dataclass(frozen=True, slots=True)
class Sender:
    """A bot as it names itself. ``contact`` and ``policy`` are None if its User-Agent has none."""

    user_agents: tuple[str, ...]  #: of all runs that the letter is about, the newest first
    token: str  #: its name in robots.txt
    policy: str | None  #: a page
    contact: str | None  #: an address of mail
    blocklist: str  #: the URL of its blocklist; "" for none

    @classmethod
    def of(cls, runs: Iterable[RunRecord], options: Options) -> Self:
        """Return the sender of the runs, the newest first; without any, that of the options."""
        given: list[Mapping[str, Any]] = [run.settings for run in runs] or [asdict(options)]
        agents = tuple(dict.fromkeys(str(settings["user_agent"]) for settings in given))
        is_ours = agents[0] == identity.USER_AGENT
        page, mail = _PAGE.search(agents[0]), _MAIL.search(agents[0])
        return cls(
            user_agents=agents,
            token=str(given[0]["ua_token"]),
            policy=identity.POLICY_URL if is_ours else page and page[0],
            contact=identity.CONTACT if is_ours else mail and mail[0],
            blocklist=str(given[0]["blocklist_url"]),
        )

    @property
    def opt_out(self) -> tuple[str, str]:
        """The two lines of robots.txt that keep the bot out."""
        return f"User-agent: {self.token}", "Disallow: /"


class RobotsFetch(NamedTuple):
    """A request for robots.txt, with all its tries and redirects."""

    at: float  #: epoch seconds: the end of that
    status: int | None  #: of the last answer; None if there was none


@dataclass(frozen=True, slots=True)
class RobotsOfDay:
    """The robots.txt of one origin that was in force for a request or a denial of the day."""

    origin: str
    hash: str | None  #: None if there was no file to obey
    asked: tuple[RobotsFetch, ...]  #: each once
    is_kept: bool  #: False if the copy is no longer in the state
    quoted: tuple[QuotedLine, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the object for ``--json``; times are RFC 3339 in UTC."""
        return {
            "origin": self.origin,
            "sha256": self.hash,
            "requests": [
                {"requested_at": rfc3339(each.at), "status": each.status} for each in self.asked
            ],
            "quoted": [line._asdict() for line in self.quoted],
        }


@dataclass(frozen=True, slots=True)
class Account:
    """One day of one host; the day is in UTC."""

    host: str
    url: str | None  #: the one URL of the call
    day: str
    sender: Sender
    requests: tuple[CheckedRequest, ...]
    denials: tuple[LoggedDenial, ...]
    robots: tuple[RobotsOfDay, ...]
    overrides: tuple[Override, ...]  #: of the host, on any day
    outlook: Outlook  #: as of now

    def redirected_from(self, record: LoggedRequest | LoggedDenial) -> str | None:
        """Return the URL that redirected, if this site itself is there (decision 36)."""
        by = record.redirected_from
        return by if by is not None and host_of(by) == self.host else None


def give_account(
    state: State,
    log: Log,
    options: Options,
    subject: str,
    day: int | None,
    sources: Sequence[Source] | None = None,
) -> Account:
    """Return the account of a host or URL on a day (days since 1970), or on its last day.

    ``sources`` are those declared now; None if they are not known. Raises CommandError if there is
    nothing; the message names the known instead.
    """
    url, host = url_of(subject), host_of(url_of(subject))
    paced = options.pace_by.unit(url)
    wanted = canonical_url(url) if "://" in subject else None
    last = log.last_day(host, paced)
    outlook = look_ahead(state, log, options, url, sources, wanted=wanted)
    overrides = state.hosts.overrides_of({paced})
    is_known = bool(outlook.targets or outlook.hold_until or overrides)
    if last is None and not is_known:
        raise CommandError(_nothing(log, host, day, last, sources, options.log_days))
    is_given = day is not None
    if day is None:
        day = int(outlook.at // DAY) if last is None else last
    span = TimeSpan(since=day * DAY, until=math.nextafter((day + 1) * DAY, 0.0))
    checked = [
        each for each in _checked(log, paced, span, outlook.at) if host_of(each.record.url) == host
    ]
    denials = list(log.denials(span, host))
    if is_given and not (checked or denials):
        raise CommandError(_nothing(log, host, day, last, sources, options.log_days))
    sent = [each for each in checked if _is_about(each.record, wanted)]
    denied = [each for each in denials if wanted in (None, canonical_url(each.url))]
    is_told = denied or any(canonical_url(each.record.url) == wanted for each in sent)
    if wanted and not is_told and not outlook.targets:
        raise CommandError(
            f"no request to {wanted} on {format_day(day)}; "
            f"`{program_name()} why {host} --on {format_day(day)}` shows its host"
        )
    numbers = {each.record.run for each in sent} | {each.run for each in denied}
    found = map(state.runs.find, sorted(filter(None, numbers), reverse=True))
    sender = Sender.of(filter(None, found), options)
    return Account(
        host=host,
        url=wanted,
        day=format_day(day),
        sender=sender,
        requests=tuple(sent),
        denials=tuple(denied),
        robots=tuple(_robots(log, [*(each.record for each in sent), *denied], sender.token)),
        overrides=tuple(overrides),
        outlook=outlook,
    )


def _checked(log: Log, paced: str, span: TimeSpan, now: float) -> list[CheckedRequest]:
    """Return the requests of a span, each with the gap before it."""
    gaps = GapCheck(log.basis(log.bounds(now)))
    for each in log.requests_before(span.since, paced):
        gaps.check(each)
    return [CheckedRequest(each, gaps.check(each)) for each in log.requests(span, paced)]


def _is_about(sent: LoggedRequest, wanted: str | None) -> bool:
    """Return True for each request; with one wanted URL, for that and robots.txt."""
    return sent.purpose == "robots" or wanted in (None, canonical_url(sent.url))


def _robots(
    log: Log, rows: Iterable[LoggedRequest | LoggedDenial], token: str
) -> Iterable[RobotsOfDay]:
    """Yield the files that were in force."""
    decided: dict[tuple[str, str | None], list[LoggedRequest | LoggedDenial]] = {}
    for row in rows:
        if row.robots_at is not None:
            decided.setdefault((robots_url(row.url), row.robots), []).append(row)
    for (url, name), cases in decided.items():
        body = None if name is None else log.copy(name)
        lines = {case.line for case in cases if case.line is not None}
        ends = {RobotsFetch(case.robots_at or 0.0, case.robots_status) for case in cases}
        yield RobotsOfDay(
            origin=origin_of(url),
            hash=name,
            asked=tuple(sorted(ends, key=itemgetter(0))),
            is_kept=body is not None,
            quoted=() if body is None else quote(body, token, lines),
        )


def _nothing(
    log: Log,
    host: str,
    day: int | None,
    last: int | None,
    sources: Sequence[Source] | None,
    days: int,
) -> str:
    if not host:
        example = f"{program_name()} why blog.example"
        return f"that is neither a host nor a URL of the web; for example: {example}"
    when = f"in the last {days} days" if day is None else f"on {format_day(day)}"
    none = f"no request to {host} {when}"
    if last is not None:
        return f"{none}; the last one was on {format_day(last)} (UTC)"
    if below := log.subdomains(host):
        return f"{none}, but to {', '.join(below)}"
    declared = ", and no source there" if sources is not None else ""
    return f"{none}{declared}. (Give the host without its port.)"


@dataclass(frozen=True, slots=True)
class HostTarget:
    """One document of the host that a source requests, or requested once."""

    url: str  #: at this host, even if the source is declared elsewhere and moved here
    record: SourceRecord
    due: NextVisit
    denial: LoggedDenial | None  #: why it was kept back, if that is its outcome
    is_disallowed: bool  #: whether its robots.txt, as we know it now, does not allow it

    def words(self, outlook: Outlook) -> str:
        """Return the time of its next request, or the reason without one."""
        if outlook.is_listed:
            return "not requested while its host is on our blocklist"
        if self.due.rule == "undeclared":
            return "no longer a source"
        if self.due.rule == "gone":
            return "gone permanently (410), so it is not requested"
        if self.record.address != self.record.url == self.url:
            return "moved permanently, so its new URL is requested"
        outcome = self.record.outcome
        last = f"{outcome}; " if outcome.startswith("denied") else ""
        if last and self.record.status is not None:  # of a redirect: no rule of this site denies it
            last = f"its redirect is {last}"
        elif self.denial is not None:
            last = f"{outcome}: {self.denial.reason}; "
        only = ", and then only if its robots.txt allows it" if self.is_disallowed else ""
        if self.due.at is not None and not self.due.is_due:
            return f"{last}not due before {format_moment(self.due.at)} ({self.due.why}){only}"
        if outlook.ready_at is not None:
            return f"{last}due, and deferred until its host may be requested{only}"
        return f"{last}due, so the next run looks at it{only}"


@dataclass(frozen=True, slots=True)
class Outlook:
    """The reasons that defer or deny the next request to a host. Times are epoch seconds."""

    at: float  #: the moment of the outlook
    times: HostTimes  #: of the host
    hold_until: float | None  #: None if the host is not on hold
    ready_at: float | None  #: None if the host may be requested now
    delay: float  #: the operator's delay in seconds, 0 for none
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
            yield "no hold and no delay keeps us from it; each gate decides again then"
        if self.delay:
            yield f"{format_seconds(self.delay)} at least between two requests, by our choice"
        if self.is_declared is False:
            where = "here" if self.url is None else "with this URL"
            was = " any more" if self.targets else ""
            yield f"no source is declared {where}{was}"
        if not self.is_listed:
            yield "a redirect of another site can lead us here too"

    @property
    def hold_why(self) -> str | None:
        """The cause of the hold; None if the host is not on hold."""
        if self.hold_until is None:
            return None
        shared = f"{self.domain} is paced as one, and " if self.domain else ""
        since = format_moment(self.times.hold_since)
        return f"{shared}{_hold_reason(self.times)}; it began at {since}"

    def as_dict(self) -> dict[str, Any]:
        """Return the outlook for ``--json``: times as RFC 3339 in UTC, durations in seconds."""
        return {
            "at": rfc3339(self.at),
            "hold_until": rfc3339(self.hold_until),
            "hold_reason": self.hold_why,
            "not_before": rfc3339(self.ready_at),
            "delay": self.delay,
            "declared": self.is_declared,
            "listed": self.is_listed,
            "targets": [
                {
                    "url": target.url,
                    "reason": target.words(self),
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
    """Return the outlook of the host of a URL.

    ``sources`` are those declared now; None if they are not known. ``wanted`` is the canonical URL
    of the only document to show; None for all.
    """
    host, paced = host_of(url), options.pace_by.unit(url)
    found = state.hosts.find(paced)
    times, now = found.times, found.now
    known = () if sources is None else _targets(state, log, options, host, sources, now)
    targets = tuple(each for each in known if wanted in (None, canonical_url(each.url)))
    declared = host_delays(sources or (), options.pace_by.unit)
    return Outlook(
        at=now,
        times=times,
        hold_until=times.hold_until if found.hold else None,
        ready_at=times.ready_at() if found.reason else None,
        delay=max(times.operator_delay, declared.get(paced, 0.0)),
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
    known = state.sources.known(options.min_revisit, now, sources)
    denials = {canonical_url(each.url): each for each in log.denials(TimeSpan(until=now), host)}
    found = [(each, declared_source(each, known)) for each in sources]
    others = [(None, each) for each in undeclared(sources, known)]
    for source, each in (*found, *others):
        record = each.record
        # Elsewhere it may be another site's: then only sources that moved here are shown (decision
        # 36).
        url = next((url for url in (record.url, record.address) if host_of(url) == host), None)
        if url is None:
            continue
        due = next_visit(each, source, options.min_revisit, now)
        is_denied = record.outcome.startswith("denied")
        denial = denials.get(canonical_url(url)) if is_denied else None
        yield HostTarget(url, record, due, denial, _is_disallowed(state, options, url, now))


def _is_disallowed(state: State, options: Options, url: str, now: float) -> bool:
    """Return True if the last robots.txt of a URL's site does not allow it, or is unreachable."""
    copy = state.robots.find(origin_of(url))
    if copy is None:
        return False
    file = RobotsFile.read(copy, options.ua_token, options.robots_unreachable, now)
    return not file.allows(url)


def _hold_reason(times: HostTimes) -> str:
    """Return the cause of a hold, as a clause about the host."""
    answer = f"it answered {times.hold_status}" if times.hold_status else "there was no answer"
    match times.hold_by:
        case "retry-after":
            wait = format_seconds(times.hold_until - times.hold_since)
            return f"{answer} and asked for {wait} (Retry-After)"
        case "visit-time":
            return "its robots.txt demands that (Visit-time)"
        case "unreachable":
            return f"it was unreachable {count_of(times.unreachable, 'time')} in a row"
        case "":
            return "its cause is not recorded"
        case "backoff":
            count = f", {count_of(times.refusals, 'time')} in a row" if times.refusals > 1 else ""
            return f"{answer}{count} (our backoff, R5)"
