"""What the record says of one host on one day, with the documents that decided."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from walsh_scrapy.policy.robots.quotation import QuotedLine, quote
from walsh_scrapy.policy.robots.usage import UsageRecord, usage_records
from walsh_scrapy.policy.urls import canonical_url, host_of
from walsh_scrapy.policy.wording import counted
from walsh_scrapy.state.hosthistory import DAY
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.hosts.names import paced_name, url_of
from walsh_scrapy.tools.printable import printable
from walsh_scrapy.tools.why.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.evidence import DenialRecord, Evidence
    from walsh_scrapy.state.hosthistory import SentRequest

#: Other days that a message names.
_MOST_DAYS = 10


@dataclass(frozen=True, slots=True)
class RobotsOfDay:
    """A robots.txt that decided about something on that day."""

    hash: str
    origin: str | None  #: None if the copy is no longer kept
    asked_at: tuple[float, ...]  #: when it was asked for, in epoch seconds, each once
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
    other_days: Mapping[str, int]  #: how much the record has of the host on each other day


def give_account(state: State, options: Options, subject: str, day: int | None) -> Account:
    """Return what is known of a host or URL on a day (days since 1970), or on its last day.

    Raises CommandError if there is nothing; the message says what is known instead.
    """
    url, host = url_of(subject), host_of(url_of(subject))
    paced = paced_name(url, options.pace_by)
    days = state.host_history.days(host, paced)
    if not days or (day is not None and day not in days):
        raise CommandError(printable(_nothing(state, host, day, days)))
    day = max(days) if day is None else day
    wanted = canonical_url(url) if "://" in subject else None
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
    if wanted and not kept_back and not any(_is(each.record.url, wanted) for each in sent):
        raise CommandError(
            printable(
                f"nothing is known of {wanted} on {_date(day)}; `scrapy why {host} --on "
                f"{_date(day)}` says what is known of its host"
            )
        )
    numbers = {each.record.run for each in sent} | {each.run for each in kept_back}
    runs = map(state.runs.find, sorted(filter(None, numbers), reverse=True))
    sender = Sender.of(filter(None, runs), options)
    evidence = [each.record.evidence for each in sent] + [each.evidence for each in kept_back]
    return Account(
        host=host,
        url=wanted,
        day=_date(day),
        sender=sender,
        requests=tuple(sent),
        denials=tuple(kept_back),
        robots=tuple(_robots(state, evidence, sender.token)),
        other_days={_date(each): count for each, count in days.items() if each != day},
    )


def _is_about(url: str, host: str, wanted: str | None, purpose: str) -> bool:
    """Return True for requests to the host; with one wanted URL, for those and robots.txt."""
    if host_of(url) != host:
        return False
    return wanted is None or purpose == "robots" or _is(url, wanted)


def _is(url: str, wanted: str) -> bool:
    return canonical_url(url) == wanted


def _robots(state: State, evidence: Iterable[Evidence], token: str) -> Iterable[RobotsOfDay]:
    decided: dict[str, list[Evidence]] = {}
    for each in evidence:
        if each.robots is not None:
            decided.setdefault(each.robots, []).append(each)
    for name, cases in decided.items():
        copy = state.evidence.copy(name)
        lines = {case.line for case in cases if case.line is not None}
        yield RobotsOfDay(
            hash=name,
            origin=copy.url if copy else None,
            asked_at=tuple(sorted({case.robots_at for case in cases if case.robots_at})),
            quoted=quote(copy.body, token, lines) if copy else (),
            usage=usage_records(copy.body) if copy else (),
        )


def _nothing(state: State, host: str, day: int | None, days: Mapping[int, int]) -> str:
    if not host:
        return "that is no host and no URL of the web; for example: scrapy why blog.example"
    when = "" if day is None else f" on {_date(day)}"
    known = f"nothing is known of {host}{when}"
    if days:
        last = list(days)[-_MOST_DAYS:]
        return f"{known}; the record has it on {_listed(days, last)} (all days in UTC)"
    if below := state.host_history.subdomains(host):
        return f"{known}; the record has {', '.join(below)}"
    return f"{known}; the record goes back WALSH_LOG_DAYS, and a host has its name without a port"


def _listed(days: Mapping[int, int], shown: Sequence[int]) -> str:
    return ", ".join(f"{_date(day)} ({counted(days[day], 'row')})" for day in shown)


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).strftime("%Y-%m-%d")
