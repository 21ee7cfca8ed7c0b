"""What the record says of one host on one day, with the documents that decided."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.robots.quotation import QuotedLine, UsageRecord, quote, usage_records
from walsh_scrapy.policy.urls import canonical_url, host_of, origin_of, robots_url
from walsh_scrapy.policy.wording import counted
from walsh_scrapy.state.hosthistory import DAY
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.hosts import held_name, paced_name, url_of
from walsh_scrapy.tools.printable import printable
from walsh_scrapy.tools.why.outlook import look_ahead
from walsh_scrapy.tools.why.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.acts import Act
    from walsh_scrapy.state.evidence import DenialRecord, Evidence
    from walsh_scrapy.state.hosthistory import SentRequest
    from walsh_scrapy.state.requests import RequestRecord
    from walsh_scrapy.tools.why.outlook import Outlook

#: Other days that a message names.
_MOST_DAYS = 10


class Asked(NamedTuple):
    """A site's own request for its robots.txt. A status is None if there was no answer."""

    at: float  #: epoch seconds
    status: int | None
    status_in_force: int | None  #: of the last answer, which is another one after a redirect


@dataclass(frozen=True, slots=True)
class RobotsOfDay:
    """What was in force as the robots.txt of one origin, for something on that day."""

    origin: str
    hash: str | None  #: None if there was no file to obey
    asked: tuple[Asked, ...]  #: each once
    is_kept: bool  #: False if the copy is no longer in the record
    quoted: tuple[QuotedLine, ...]
    usage: tuple[UsageRecord, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """One day of one host; the day is in UTC."""

    host: str
    url: str | None  #: the one URL that was asked about
    day: str
    sender: Sender
    requests: tuple[SentRequest, ...]
    denials: tuple[DenialRecord, ...]
    robots: tuple[RobotsOfDay, ...]
    keys: Mapping[int, str]  #: the id of the key that signed over https, by run
    acts: tuple[Act, ...]  #: what the operator did to the host, on any day
    outlook: Outlook  #: as of now
    other_days: Mapping[str, int]  #: how much the record has of the host on each other day

    def signed_by(self, record: RequestRecord) -> str | None:
        """Return the id of the key that signed a request; None for one that was not signed.

        Over plain http nothing is signed, and without an answer it may not have been sent.
        """
        if record.run is None or record.status is None or not record.url.startswith("https:"):
            return None
        return self.keys.get(record.run)

    def redirected_by(self, evidence: Evidence) -> str | None:
        """Return the URL that redirected, if this site itself is there (decision 33)."""
        by = evidence.redirected_by
        return by if by is not None and host_of(by) == self.host else None


def give_account(
    state: State,
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
    paced = paced_name(url, options.pace_by)
    wanted = canonical_url(url) if "://" in subject else None
    days = state.host_history.days(host, paced)
    outlook = look_ahead(state, options, url, sources, wanted=wanted)
    acts = state.acts.of({paced, held_name(url, options.pace_by)})
    is_known = bool(outlook.targets or outlook.hold_until or acts)
    if (day is not None and day not in days) or not (days or is_known):
        raise CommandError(printable(_nothing(state, host, day, days, sources)))
    if day is None:
        day = max(days, default=int(outlook.at // DAY))
    since = day * DAY
    sent = [
        each
        for each in state.host_history.sent(paced, since, since + DAY)
        if _is_about(each.record.url, host, wanted, each.record.purpose)
    ]
    kept_back = [
        each
        for each in state.host_history.denied(host, since, since + DAY)
        if wanted is None or _is(each.url, wanted)
    ]
    is_told = kept_back or any(_is(each.record.url, wanted) for each in sent if wanted)
    if wanted and not is_told and not outlook.targets:
        raise CommandError(
            printable(
                f"nothing is known of {wanted} on {_date(day)}; `scrapy why {host} --on "
                f"{_date(day)}` says what is known of its host"
            )
        )
    numbers = {each.record.run for each in sent} | {each.run for each in kept_back}
    found = map(state.runs.find, sorted(filter(None, numbers), reverse=True))
    runs = [run for run in found if run is not None]
    sender = Sender.of(runs, options)
    evidence = [(each.record.url, each.record.evidence) for each in sent]
    evidence += [(each.url, each.evidence) for each in kept_back]
    return Account(
        host=host,
        url=wanted,
        day=_date(day),
        sender=sender,
        requests=tuple(sent),
        denials=tuple(kept_back),
        robots=tuple(_robots(state, paced, evidence, sender.token)),
        keys={run.id: key for run in runs if (key := run.settings.get("signing_key"))},
        acts=tuple(acts),
        outlook=outlook,
        other_days={_date(each): count for each, count in days.items() if each != day},
    )


def _is_about(url: str, host: str, wanted: str | None, purpose: str) -> bool:
    """Return True for requests to the host; with one wanted URL, for those and robots.txt."""
    if host_of(url) != host:
        return False
    return wanted is None or purpose == "robots" or _is(url, wanted)


def _is(url: str, wanted: str) -> bool:
    return canonical_url(url) == wanted


def _robots(
    state: State, paced: str, evidence: Iterable[tuple[str, Evidence]], token: str
) -> Iterable[RobotsOfDay]:
    """Yield what was in force; where it came from is what the site's own requests say."""
    decided: dict[tuple[str, str | None], list[Evidence]] = {}
    for url, each in evidence:
        if each.robots_at is not None:
            decided.setdefault((robots_url(url), each.robots), []).append(each)
    for (url, name), cases in decided.items():
        copy = None if name is None else state.evidence.copy(name)
        lines = {case.line for case in cases if case.line is not None}
        ends = {(case.robots_at or 0.0, case.robots_status) for case in cases}
        yield RobotsOfDay(
            origin=origin_of(url),
            hash=name,
            asked=tuple(_asked(state, url, paced, *end) for end in sorted(ends, key=itemgetter(0))),
            is_kept=copy is not None,
            quoted=quote(copy.body, token, lines) if copy else (),
            usage=usage_records(copy.body) if copy else (),
        )


def _asked(state: State, url: str, paced: str, at: float, status: int | None) -> Asked:
    """Return the request for a robots.txt that ended at a moment, after all its redirects."""
    own = state.host_history.asked_for_robots(url, paced, at)
    if own is None:  # it is no longer in the log
        return Asked(at, status, status)
    return Asked(own.sent_at, own.status, status)


def _nothing(
    state: State,
    host: str,
    day: int | None,
    days: Mapping[int, int],
    sources: Sequence[Source] | None,
) -> str:
    if not host:
        return "that is no host and no URL of the web; for example: scrapy why blog.example"
    when = "" if day is None else f" on {_date(day)}"
    known = f"nothing is known of {host}{when}"
    if days:
        last = list(days)[-_MOST_DAYS:]
        return f"{known}; the record has it on {_listed(days, last)} (all days in UTC)"
    if below := state.host_history.subdomains(host):
        return f"{known}; the record has {', '.join(below)}"
    declared = "no source is declared there, and " if sources is not None else ""
    return (
        f"{known}; {declared}the record goes back WALSH_LOG_DAYS, and a host has its name without "
        "a port"
    )


def _listed(days: Mapping[int, int], shown: Sequence[int]) -> str:
    return ", ".join(f"{_date(day)} ({counted(days[day], 'row')})" for day in shown)


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).strftime("%Y-%m-%d")
