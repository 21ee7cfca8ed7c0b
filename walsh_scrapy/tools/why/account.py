"""What the record says of one host on one day, with the documents that decided."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy import identity
from walsh_scrapy.policy.audit.pace import JudgedRequest, PauseJudge
from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.robots.copy import QuotedLine, quote
from walsh_scrapy.policy.urls import canonical_url, host_of, origin_of, robots_url
from walsh_scrapy.policy.wording import format_day
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.hosts import url_of
from walsh_scrapy.tools.why.outlook import look_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Self

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.audit.record import LoggedDenial, LoggedRequest
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.hosts import Override
    from walsh_scrapy.state.log import Log
    from walsh_scrapy.state.runs import RunRecord
    from walsh_scrapy.tools.why.outlook import Outlook

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


class Asked(NamedTuple):
    """A robots.txt that was asked for, with all its tries and redirects."""

    at: float  #: epoch seconds: the end of that
    status: int | None  #: of the last answer; None if there was none


@dataclass(frozen=True, slots=True)
class RobotsOfDay:
    """The robots.txt of one origin that was in force for a request or a denial of the day."""

    origin: str
    hash: str | None  #: None if there was no file to obey
    asked: tuple[Asked, ...]  #: each once
    is_kept: bool  #: False if the copy is no longer in the record
    quoted: tuple[QuotedLine, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the object for ``--json``; times are RFC 3339 in UTC."""
        return {
            "origin": self.origin,
            "hash": self.hash,
            "asked": [each._asdict() | {"at": rfc3339(each.at)} for each in self.asked],
            "quoted": [line._asdict() for line in self.quoted],
        }


@dataclass(frozen=True, slots=True)
class Account:
    """One day of one host; the day is in UTC."""

    host: str
    url: str | None  #: the one URL that was asked about
    day: str
    sender: Sender
    requests: tuple[JudgedRequest, ...]
    denials: tuple[LoggedDenial, ...]
    robots: tuple[RobotsOfDay, ...]
    overrides: tuple[Override, ...]  #: of the host, on any day
    outlook: Outlook  #: as of now

    def redirected_by(self, record: LoggedRequest | LoggedDenial) -> str | None:
        """Return the URL that redirected, if this site itself is there (decision 36)."""
        by = record.redirected_by
        return by if by is not None and host_of(by) == self.host else None


def give_account(
    state: State,
    log: Log,
    options: Options,
    subject: str,
    day: int | None,
    sources: Sequence[Source] | None = None,
) -> Account:
    """Return what is known of a host or URL on a day (days since 1970), or on its last day.

    ``sources`` are those declared now; None if they are not known. Raises CommandError if there is
    nothing; the message says what is known instead.
    """
    url, host = url_of(subject), host_of(url_of(subject))
    paced = options.pace_by.unit(url)
    wanted = canonical_url(url) if "://" in subject else None
    last = log.last_day(host, paced)
    outlook = look_ahead(state, log, options, url, sources, wanted=wanted)
    overrides = state.hosts.overrides_of({paced})
    is_known = bool(outlook.targets or outlook.hold_until or overrides)
    if last is None and not is_known:
        raise CommandError(_nothing(log, host, day, last, sources))
    is_given = day is not None
    if day is None:
        day = int(outlook.at // DAY) if last is None else last
    span = TimeSpan(since=day * DAY, until=math.nextafter((day + 1) * DAY, 0.0))
    judged = [
        each for each in _judged(log, paced, span, outlook.at) if host_of(each.record.url) == host
    ]
    denials = list(log.denials(span, host))
    if is_given and not (judged or denials):
        raise CommandError(_nothing(log, host, day, last, sources))
    sent = [each for each in judged if _is_about(each.record, wanted)]
    denied = [each for each in denials if wanted in (None, canonical_url(each.url))]
    is_told = denied or any(canonical_url(each.record.url) == wanted for each in sent)
    if wanted and not is_told and not outlook.targets:
        raise CommandError(
            f"nothing is known of {wanted} on {format_day(day)}; `scrapy why {host} --on "
            f"{format_day(day)}` says what is known of its host"
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


def _judged(log: Log, paced: str, span: TimeSpan, now: float) -> list[JudgedRequest]:
    """Return the requests of a span, each with the pause before it."""
    judge = PauseJudge(log.basis(log.bounds(now)))
    for each in log.requests_before(span.since, paced):
        judge.judge(each)
    return [JudgedRequest(each, judge.judge(each)) for each in log.requests(span, paced)]


def _is_about(sent: LoggedRequest, wanted: str | None) -> bool:
    """Return True for each request; with one wanted URL, for that and robots.txt."""
    return sent.purpose == "robots" or wanted in (None, canonical_url(sent.url))


def _robots(
    log: Log, rows: Iterable[LoggedRequest | LoggedDenial], token: str
) -> Iterable[RobotsOfDay]:
    """Yield what was in force."""
    decided: dict[tuple[str, str | None], list[LoggedRequest | LoggedDenial]] = {}
    for row in rows:
        if row.robots_at is not None:
            decided.setdefault((robots_url(row.url), row.robots), []).append(row)
    for (url, name), cases in decided.items():
        body = None if name is None else log.copy(name)
        lines = {case.line for case in cases if case.line is not None}
        ends = {Asked(case.robots_at or 0.0, case.robots_status) for case in cases}
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
) -> str:
    if not host:
        return "that is no host and no URL of the web; for example: scrapy why blog.example"
    when = "" if day is None else f" on {format_day(day)}"
    known = f"nothing is known of {host}{when}"
    if last is not None:
        return f"{known}; the last day on which the record has it is {format_day(last)} (UTC)"
    if below := log.subdomains(host):
        return f"{known}; the record has {', '.join(below)}"
    declared = "no source is declared there, and " if sources is not None else ""
    return (
        f"{known}; {declared}the record goes back WALSH_LOG_DAYS, and a host has its name without "
        "a port"
    )
