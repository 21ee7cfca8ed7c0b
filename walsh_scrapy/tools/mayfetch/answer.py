"""The answer of the gates, or of one robots.txt, about a URL to a bot, for programs and people."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.robots.copy import RobotsCopy, RobotsFile
from walsh_scrapy.policy.robots.robotstxt import token_of
from walsh_scrapy.policy.robots.secondreader import SecondReader
from walsh_scrapy.policy.urls import origin_of, robots_url
from walsh_scrapy.policy.wording import and_more, format_seconds
from walsh_scrapy.tools.call import WrongCall

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Line numbers of a group that are shown.
MAX_GROUP_LINES = 10
_INDENT = " " * 13
_VERDICTS: Final = {True: "allowed", False: "denied", None: "undecided"}


@dataclass(frozen=True, slots=True)
class RobotsAnswer:
    """The answer of a robots.txt about a URL; times are epoch seconds, durations seconds."""

    origin: str
    requested_at: float | None  #: None for a file given by the operator
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
    protego: bool | None  #: Protego's answer, if it differs
    reason: str

    def lines(self, now: float) -> Iterator[str]:
        """Yield the answer for operators: the file, our group, the rule, and the rest."""
        yield f"  robots     {self._file(now)}"
        if self.group is not None:
            numbers = ", ".join(map(str, self.group_lines[:MAX_GROUP_LINES]))
            if (left := len(self.group_lines) - MAX_GROUP_LINES) > 0:
                numbers = f"{numbers} {and_more(left)}"
            yield f"{_INDENT}group {self.group!r} (line {numbers})"
        else:
            yield f"{_INDENT}no group applies"
        yield f"{_INDENT}{self.reason}"
        if self.protego is not None:
            yield f"{_INDENT}Protego, the parser of Scrapy, would answer: {_VERDICTS[self.protego]}"
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
        if self.requested_at is None:
            return "the file given"
        age = format_seconds(now - self.requested_at)
        return f"{robots_url(self.origin)}, {self.status or 'no response'}, {age} old"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer about one URL to one bot. Times are epoch seconds, durations seconds.

    The fields after ``robots`` are those of a project; they are None where a file is tried alone.
    """

    url: str
    bot: str  #: by its name in robots.txt, or as the call names it
    allowed: bool | None  #: None if a gate cannot decide
    gate: str | None  #: the gate that denies, or cannot decide
    reason: str
    allowed_from: float | None  #: when that is later than now
    robots: RobotsAnswer | None
    blocklist: str | None = None
    host: str | None = None
    delay: float | None = None  #: from the end of one request to the start of the next
    hold_until: float | None = None
    next_request_at: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for ``--json``: times as RFC 3339 in UTC."""
        times = ("allowed_from", "hold_until", "next_request_at")
        told = asdict(self) | {name: rfc3339(getattr(self, name)) for name in times}
        if told["robots"]:
            told["robots"]["requested_at"] = rfc3339(told["robots"]["requested_at"])
        return told

    def as_row(self) -> dict[str, Any]:
        """Return the answer of a robots.txt as a row of a table."""
        robots = self.robots
        row = {"bot": self.bot, "verdict": self.verdict, "url": self.url}
        names = ("group", "line", "rule")
        return row | {name: getattr(robots, name) if robots else None for name in names}

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.allowed and self.allowed_from is not None:
            return f"allowed from {format_moment(self.allowed_from)}"
        return _VERDICTS[self.allowed]

    def lines(self, now: float) -> Iterator[str]:
        """Yield the answer for people: the verdict, then the answer of each gate."""
        if self.host is None or self.delay is None:
            yield f"{self.url}: {self.verdict} for {self.bot}"
            yield from self.robots.lines(now) if self.robots else ()
            return
        held = ""
        # A denial and an opening matter more than the hold.
        if self.hold_until is not None and self.allowed is not False and not self.allowed_from:
            held = f", but {self.host} is on hold until {format_moment(self.hold_until)}"
        if self.allowed is None:
            yield f"{self.url}: {self.verdict}: {self.reason}{held}"
        else:
            yield f"{self.url}: {self.verdict}{f' by {self.gate}' if self.gate else ''}{held}"
        if self.gate == "url":
            return
        yield f"  blocklist  {self.blocklist}"
        if self.gate not in (None, "blocklist", "robots"):
            yield f"  {self.gate:<10} {self.reason}"
        if self.robots is None:
            is_denied = self.gate == "robots" and self.allowed is not None
            yield f"  robots     {self.reason if is_denied else 'not checked'}"
        else:
            yield from self.robots.lines(now)
        if self.allowed_from and self.robots and self.robots.reason != self.reason:
            yield f"  deferred   {self.reason}"
        yield f"  pacing     {self._pacing(self.delay, now)}"

    def _pacing(self, delay: float, now: float) -> str:
        hold = f"; on hold until {format_moment(self.hold_until)}" if self.hold_until else ""
        wait = (self.next_request_at or now) - now
        when = f"in {format_seconds(wait)}, {format_moment(now + wait)}" if wait > 0 else "now"
        return f"one request every {format_seconds(delay)}{hold}; next {when}"


class Draft:
    """A robots.txt as one bot reads it, at an epoch second.

    The bot is named by its token or its User-Agent; `*` stands for every bot without a group.
     Raises WrongCall if the name names no bot.
    """

    def __init__(self, body: bytes, user_agent: str, now: float) -> None:
        token = "*" if user_agent == "*" else token_of(user_agent)
        if token is None:
            raise WrongCall(f"{user_agent!r} names no bot; write its name in robots.txt, or '*'")
        self._user_agent = user_agent
        self._bot = token if " " in user_agent else user_agent
        self._now = now
        self._file = RobotsFile.read(RobotsCopy(now, 200, body), token, "disallow", now)

    def answer(self, url: str) -> Answer:
        """Return the answer of the file about a URL."""
        robots = robots_answer(self._file, url, self._user_agent, self._now)
        # A file of the operator is that of no host, and nobody has fetched it.
        robots = replace(robots, requested_at=None, status=None)
        allowed = self._file.rules.verdict(url).allowed
        is_closed = allowed and robots.opens_in > 0
        return Answer(
            url=url,
            bot=self._bot,
            allowed=allowed,
            gate=None if allowed else "robots",
            reason=robots.reason,
            allowed_from=self._now + robots.opens_in if is_closed else None,
            robots=robots,
        )


def robots_answer(file: RobotsFile, url: str, user_agent: str, now: float) -> RobotsAnswer:
    """Return the answer of a file about ``url`` at an epoch second to the bot of the file."""
    verdict = file.rules.verdict(url)
    real = not file.is_replaced
    theirs = _second_reader(file.copy.body or b"").allows(url, user_agent) if real else None
    return RobotsAnswer(
        origin=origin_of(url),
        requested_at=file.copy.requested_at,
        status=file.copy.status,
        group=file.rules.group if real else None,
        group_lines=file.rules.lines if real else (),
        rule=verdict.rule if real else None,
        line=verdict.line if real else None,
        crawl_delay=file.rules.crawl_delay,
        request_rate=file.rate(now),
        opens_in=file.closed_for(now),
        comments=file.rules.comments,
        ignored=tuple(f"line {line}: {what}" for line, what in file.rules.warnings),
        protego=theirs if real and theirs is not verdict.allowed else None,
        reason=file.why(verdict),
    )


def find_url_problem(url: str) -> str:
    """Return why no crawl may request this kind of URL (decision 16); "" if one may."""
    if origin_of(url).startswith(("http://", "https://")):
        return ""
    is_address = "://" not in url and "." in url.partition("/")[0]
    is_whole = is_address and not find_url_problem(f"https://{url}")
    return f"this is not an http or https URL with a host{f'; write https://{url}' * is_whole}"


_second_reader = lru_cache(maxsize=1)(SecondReader)
