"""What a robots.txt and the other gates say of one URL, for programs and for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.robots.secondreader import SecondReader
from walsh_scrapy.policy.urls import origin_of
from walsh_scrapy.policy.wording import and_more, format_seconds
from walsh_scrapy.tools.hosts import on_hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.robots.copy import RobotsFile

#: Line numbers of a group that are shown.
MOST_LINES = 10
_INDENT = " " * 13


@dataclass(frozen=True, slots=True)
class RobotsAnswer:
    """What a robots.txt says of a URL; times are epoch seconds, durations seconds."""

    origin: str
    fetched_at: float | None  #: None for a file given by the operator
    status: int | None
    group: str | None  #: the User-agent value of our group
    group_lines: tuple[int, ...]
    rule: str | None
    line: int | None
    crawl_delay: float | None
    request_rate: float | None
    opens_in: float  #: until Visit-time allows a request; 0 if it does now
    comments: tuple[str, ...]
    ignored: tuple[str, ...]  #: lines of our group that could not be understood
    protego: bool | None  #: what Protego would answer, if that is something else
    why: str

    def lines(self, now: float) -> Iterator[str]:
        """Yield the answer for operators: the file, our group, the rule, and the rest."""
        yield f"  robots     {self._file(now)}"
        if self.group is not None:
            numbers = ", ".join(map(str, self.group_lines[:MOST_LINES]))
            if (left := len(self.group_lines) - MOST_LINES) > 0:
                numbers = f"{numbers} {and_more(left)}"
            yield f"{_INDENT}group {self.group!r} (line {numbers})"
        else:
            yield f"{_INDENT}no group applies"
        yield f"{_INDENT}{self.why}"
        if self.protego is not None:
            theirs = "allowed" if self.protego else "denied"
            yield f"{_INDENT}Protego, the parser of Scrapy, would say: {theirs}"
        for name, seconds in (
            ("Crawl-delay", self.crawl_delay),
            ("Request-rate", self.request_rate),
        ):
            if seconds is not None:
                yield f"{_INDENT}{name}: one request every {format_seconds(seconds)}"
        if self.opens_in > 0:
            yield f"{_INDENT}Visit-time: opens in {format_seconds(self.opens_in)}"
        for comment in self.comments:
            yield f"{_INDENT}Comment: {comment}"
        for line in self.ignored:
            yield f"{_INDENT}{line}"

    def _file(self, now: float) -> str:
        if self.fetched_at is None:
            return "the file given"
        age = format_seconds(now - self.fetched_at)
        return f"{self.origin}/robots.txt, {self.status or 'no response'}, {age} old"


@dataclass(frozen=True, slots=True)
class MayFetch:
    """What the gates say of a URL; times are epoch seconds, durations seconds."""

    url: str
    allowed: bool | None  #: None if a gate cannot say
    gate: str | None  #: the gate that denies, or cannot say
    why: str
    blocklist: str
    robots: RobotsAnswer | None
    host: str
    delay: float  #: from the end of one request to the start of the next
    hold_until: float | None
    next_request_at: float

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for ``--json``."""
        return asdict(self) | {"allowed_from": self.allowed_from}

    @property
    def allowed_from(self) -> float | None:
        """When Visit-time allows what is allowed, in epoch seconds; None if it does now."""
        closed = self.robots is not None and self.robots.opens_in > 0
        return self.next_request_at if closed and self.allowed else None

    def lines(self, now: float) -> Iterator[str]:
        """Yield the answer for operators: the verdict, then what each gate says."""
        verdict = verdict_of(self.allowed, self.allowed_from)
        held = "" if self.hold_until is None else f", but {on_hold(self.host, self.hold_until)}"
        if self.allowed is False or self.allowed_from is not None:  # that says more than the hold
            held = ""
        yield f"{self.url}: {verdict}{f' by {self.gate}' if self.gate else ''}{held}"
        yield f"  blocklist  {self.blocklist}"
        if self.robots is not None:
            yield from self.robots.lines(now)
        else:
            yield f"  robots     {'not requested' if self.gate == 'blocklist' else self.why}"
        yield f"  pacing     {self._pacing(now)}"

    def _pacing(self, now: float) -> str:
        hold = f"; on hold until {format_moment(self.hold_until)}" if self.hold_until else ""
        wait = self.next_request_at - now
        when = "now"
        if wait > 0:
            when = f"in {format_seconds(wait)}, {format_moment(self.next_request_at)}"
        return f"one request every {format_seconds(self.delay)}{hold}; next {when}"


def verdict_of(allowed: bool | None, allowed_from: float | None) -> str:
    """Return a verdict in words; ``allowed_from`` is in epoch seconds."""
    if allowed and allowed_from is not None:
        return f"allowed from {format_moment(allowed_from)}"
    return {True: "allowed", False: "denied", None: "cannot say"}[allowed]


#: What is wrong with an argument that no crawl may request (decision 16).
NO_URL = "this is not an http or https URL with a host"


def robots_answer(
    file: RobotsFile, url: str, user_agent: str, now: float, *, given: bool
) -> RobotsAnswer:
    """Return what a file says of ``url`` at an epoch second to the bot that it was read for.

    ``given`` is True for a file of the operator, which no host has yet.
    """
    verdict = file.rules.verdict(url)
    real = not file.is_replaced
    body = file.copy.body or b""
    return RobotsAnswer(
        origin=origin_of(url),
        fetched_at=None if given else file.copy.fetched_at,
        status=None if given else file.copy.status,
        group=file.rules.group if real else None,
        group_lines=file.rules.lines if real else (),
        rule=verdict.rule if real else None,
        line=verdict.line if real else None,
        crawl_delay=file.rules.crawl_delay,
        request_rate=file.rate(now),
        opens_in=file.closed_for(now),
        comments=file.rules.comments,
        ignored=tuple(f"line {line}: {what}" for line, what in file.rules.warnings),
        protego=_protego(body, url, user_agent, allowed=verdict.allowed) if real else None,
        why=file.why(verdict),
    )


def scheme_hint(text: str) -> str:
    """Return what to write instead of an address without a scheme; "" for anything else."""
    written = f"https://{text}"
    is_address = "://" not in text and "." in text.partition("/")[0] and is_web(written)
    return f"; write {written}" if is_address else ""


def is_web(url: str) -> bool:
    """Return True if a crawl may request this kind of URL at all (decision 16)."""
    return origin_of(url).startswith(("http://", "https://"))


def _protego(body: bytes, url: str, user_agent: str, *, allowed: bool) -> bool | None:
    """Return whether Protego allows a URL, if that is not our verdict; None if it agrees."""
    theirs = _second_reader(body).allows(url, user_agent)
    return None if theirs is allowed else theirs


_second_reader = lru_cache(maxsize=1)(SecondReader)
