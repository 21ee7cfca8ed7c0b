"""Every gate's answer about a URL, with its reason, from what the state knows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from walsh_scrapy.policy.durations import format_seconds
from walsh_scrapy.policy.pacing import spacing
from walsh_scrapy.policy.robots.access import RobotsCopy
from walsh_scrapy.policy.robots.copies import RobotsFile
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.urls import origin_of
from walsh_scrapy.politeness.blocklist import BlocklistCache
from walsh_scrapy.politeness.robots import RobotsCache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.runtime.context import Context


@dataclass(frozen=True, slots=True)
class RobotsAnswer:
    """What a robots.txt says of a URL; times are epoch seconds, durations seconds."""

    origin: str
    fetched_at: float | None  #: None for a file that was given instead
    status: int | None
    group: str | None  #: the User-agent value whose groups are ours
    group_lines: tuple[int, ...]
    rule: str | None
    line: int | None
    crawl_delay: float | None
    request_rate: float | None
    opens_in: float
    comments: tuple[str, ...]
    ignored: tuple[str, ...]  #: lines of our groups that could not be understood
    why: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a URL may be fetched; None where a gate cannot say."""

    url: str
    allowed: bool | None
    gate: str | None  #: the gate that denies, or cannot say
    why: str
    blocklist: str
    robots: RobotsAnswer | None
    host: str
    interval: float  #: seconds from the end of one request to the next
    hold_until: float | None
    next_request_at: float

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for programs (``--json``)."""
        return asdict(self)

    def lines(self, now: float) -> Iterator[str]:
        """Yield the answer for people, a line a gate."""
        verdict = {True: "allowed", False: "denied", None: "cannot say"}[self.allowed]
        yield f"{self.url}: {verdict}{f' by {self.gate}' if self.gate else ''}"
        yield f"  blocklist  {self.blocklist}"
        if self.robots is not None:
            yield from _robots_lines(self.robots, now)
        else:
            yield f"  robots     {'not asked for' if self.gate == 'blocklist' else self.why}"
        wait = self.next_request_at - now
        when = (
            "now"
            if wait <= 0
            else f"in {format_seconds(wait)}, {format_moment(self.next_request_at)}"
        )
        hold = f"; on hold until {format_moment(self.hold_until)}" if self.hold_until else ""
        yield f"  pacing     one request every {format_seconds(self.interval)}{hold}; next {when}"


class Explainer:
    """Answers from the state alone; ``robots`` is a file to try in the place of every host's."""

    def __init__(
        self, context: Context, robots: bytes | None = None, *, asked: bool = False
    ) -> None:
        self._context = context
        self._list = BlocklistCache(context)
        self._files = RobotsCache(context)
        self._robots = robots
        # Where the list was asked for just now, a crawl would go on with the last one as well.
        self._must_ask = self._list.is_due and robots is None and not asked

    def explain(self, url: str) -> Answer:
        """Return what each gate says of ``url`` now."""
        now = self._context.clock.now()
        origin = origin_of(url)
        file = self._file(origin, now)
        robots = None if file is None else _robots_answer(file, origin, url, now, self._robots)
        allowed, gate, why = self._decide(url, origin, file)
        host = self._context.host(url)
        times = self._context.state.ledger.find(host).times
        asked = file.interval(now) if file else 0.0
        interval = spacing(max(self._context.options.min_interval, times.interval), asked)
        opens_in = file.closed_for(now) if file else 0.0
        return Answer(
            url=url,
            allowed=allowed,
            gate=gate,
            why=why,
            blocklist=self._blocklist(url),
            robots=None if gate == "blocklist" else robots,
            host=host,
            interval=interval,
            hold_until=times.hold_until if times.hold_until > now else None,
            next_request_at=max(times.ready_at(interval), now + opens_in, now),
        )

    def _file(self, origin: str, now: float) -> RobotsFile | None:
        if self._robots is None:
            return self._files.find(origin)
        options = self._context.options
        copy = RobotsCopy(now, 200, self._robots)
        return RobotsFile.read(copy, options.ua_token, options.robots_unreachable, now)

    def _decide(
        self, url: str, origin: str, file: RobotsFile | None
    ) -> tuple[bool | None, str | None, str]:
        if not is_web(url):
            return None, "url", "this is no http or https URL with a host"
        if self._list.blocks(url):
            return False, "blocklist", self._blocklist(url)
        if self._must_ask:
            return None, "blocklist", self._blocklist(url)
        if file is None:
            return None, "robots", f"the robots.txt of {origin} has not been read in its time"
        verdict = file.rules.verdict(url)
        return verdict.allowed, None if verdict.allowed else "robots", file.why(verdict)

    def _blocklist(self, url: str) -> str:
        if not self._context.options.blocklist_url:
            return "this bot has none"
        if entry := self._list.blocks(url):
            return f"{entry.domain} opted out on {entry.added or 'an unknown day'}: {entry.reason}"
        if not self._list.is_due:
            return "not listed"
        if self._must_ask:
            return "the list has to be asked for anew"
        return "not asked for" if self._robots is not None else "not in the last list there was"


def is_web(url: str) -> bool:
    """Tell whether a URL is one that a crawl could ask for (decision 16)."""
    return origin_of(url).startswith(("http://", "https://"))


def _robots_answer(
    file: RobotsFile, origin: str, url: str, now: float, given: bytes | None
) -> RobotsAnswer:
    verdict = file.rules.verdict(url)
    real = not file.is_replaced
    return RobotsAnswer(
        origin=origin,
        fetched_at=file.copy.fetched_at if given is None else None,
        status=file.copy.status if given is None else None,
        group=file.rules.group if real else None,
        group_lines=file.rules.lines if real else (),
        rule=verdict.rule if real else None,
        line=verdict.line if real else None,
        crawl_delay=file.rules.crawl_delay,
        request_rate=file.rate(now),
        opens_in=file.closed_for(now),
        comments=file.rules.comments,
        ignored=tuple(f"line {line}: {what}" for line, what in file.rules.warnings),
        why=file.why(verdict),
    )


def _robots_lines(robots: RobotsAnswer, now: float) -> Iterator[str]:
    if robots.fetched_at is None:
        source = "the file given"
    else:
        answer = robots.status or "no answer"
        age = format_seconds(now - robots.fetched_at)
        source = f"{robots.origin}/robots.txt, {answer}, {age} old"
    yield f"  robots     {source}"
    if robots.group is not None:
        lines = ", ".join(map(str, robots.group_lines))
        yield f"             group {robots.group!r} (line {lines})"
    else:
        yield "             no group for us"
    yield f"             {robots.why}"
    for name, seconds in (
        ("Crawl-delay", robots.crawl_delay),
        ("Request-rate", robots.request_rate),
    ):
        if seconds is not None:
            yield f"             {name}: one request every {format_seconds(seconds)}"
    if robots.opens_in > 0:
        yield f"             Visit-time: opens in {format_seconds(robots.opens_in)}"
    for comment in robots.comments:
        yield f"             Comment: {comment}"
    for line in robots.ignored:
        yield f"             {line}"
