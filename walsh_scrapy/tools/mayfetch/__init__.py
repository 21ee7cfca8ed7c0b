"""``walsh mayfetch``: whether a project, or any bot by a robots.txt file, may fetch a URL."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from protego import Protego

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.robots.copy import RobotsCopy, RobotsFile
from walsh_scrapy.policy.urls import origin_of, robots_url
from walsh_scrapy.policy.useragents import NoBotName, is_token, token_in
from walsh_scrapy.policy.wording import and_more, format_seconds
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import Unusable, WrongCall, read_file
from walsh_scrapy.tools.show import print_lines, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.tools.call import Call


_MAX_WAIT_SECONDS: Final = 30
#: The columns of the table for several bots.
_COLUMNS: Final = ("bot", "verdict", "group", "line", "rule", "url")


def run(call: Call) -> int:
    """Print the answers."""
    arguments = call.arguments
    if arguments.robots is not None:
        now = time.time()
        answers = _ask_file(call, now)
    elif not call.has_project:
        raise Unusable(
            "there is no Scrapy project here; name a robots.txt with --robots FILE, or pipe one: "
            f"curl -s https://blog.example/robots.txt | {program_name()} mayfetch --robots - URL"
        )
    elif arguments.user_agent:
        raise WrongCall("--user-agent needs --robots FILE, because a project has only one bot")
    else:
        answers, now = _ask_gates(call)
    if arguments.json:
        print_lines(json.dumps(answer.as_dict()) for answer in answers)
    elif arguments.user_agent and len(arguments.user_agent) > 1:
        show((answer.as_row() for answer in answers), _COLUMNS, as_json=False, empty="")
    else:
        print_lines(line for answer in answers for line in answer.lines(now))
    return 0 if all(answer.allowed for answer in answers) else 1


def _ask_file(call: Call, now: float) -> Sequence[Answer]:
    """Return the answers of a robots.txt file for each URL and bot."""
    arguments = call.arguments
    for url in arguments.urls:
        if problem := find_url_problem(url):
            raise WrongCall(f"{url}: {problem}")
    body = read_file(arguments.robots)
    bots = arguments.user_agent or [call.identity.ua_token if call.has_project else UA_TOKEN]
    drafts = [Draft(body, bot, now) for bot in bots]
    return [draft.answer(url) for url in arguments.urls for draft in drafts]


def _ask_gates(call: Call) -> tuple[Sequence[Answer], float]:
    """Return the answers of the project, and the epoch second for which they hold.

    Without --offline they come from probes through its middlewares, which take time.
    """
    from contextlib import closing

    from walsh_scrapy.crawl.context import Context, ProjectDelays
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.mayfetch.probe import Explainer, MayfetchSpider

    arguments = call.arguments
    call.check_gates()
    outcomes: dict[str, BaseException | None] = {}
    urls = [url for url in arguments.urls if not find_url_problem(url)]
    if urls and not arguments.offline:
        call.crawl(MayfetchSpider, _MAX_WAIT_SECONDS, urls=urls, outcomes=outcomes)
    with closing(State(call.options.state_url)) as state:
        delays = ProjectDelays(call.settings, None, call.options.pace_by.unit_of)
        context = Context(call.options, state, project_delays=delays)
        explainer = Explainer(context, outcomes, offline=arguments.offline)
        now = context.clock.now()
        return [explainer.explain(url, now) for url in arguments.urls], now


#: The maximum number of line numbers that are shown for a group.
MAX_GROUP_LINES = 10
_INDENT = " " * 13
_VERDICTS: Final = {True: "allowed", False: "denied", None: "undecided"}


@dataclass(frozen=True, slots=True)
class RobotsAnswer:
    """The answer of a robots.txt about a URL. Times are epoch seconds, durations are seconds."""

    origin: str
    requested_at: float | None  #: None for a file of the operator
    status: int | None
    group: str | None  #: the User-agent value of the group for the bot
    group_lines: tuple[int, ...]
    rule: str | None
    line: int | None
    crawl_delay: float | None
    request_rate: float | None
    opens_in: float  #: seconds until Visit-time allows a request; 0 for now
    comments: tuple[str, ...]
    ignored: tuple[str, ...]  #: lines of the group that have no valid value
    protego: bool | None  #: the answer of Protego, if it differs
    reason: str

    def lines(self, now: float) -> Iterator[str]:
        """Yield the lines for an operator: the file, the group, the rule, and the other fields."""
        yield f"  robots     {self._describe_file(now)}"
        if self.group is not None:
            numbers = ", ".join(map(str, self.group_lines[:MAX_GROUP_LINES]))
            if (hidden := len(self.group_lines) - MAX_GROUP_LINES) > 0:
                numbers = f"{numbers} {and_more(hidden)}"
            yield f"{_INDENT}group {self.group!r} (line {numbers})"
        else:
            yield f"{_INDENT}no group applies"
        yield f"{_INDENT}{self.reason}"
        if self.protego is not None:
            yield f"{_INDENT}Protego, the parser of Scrapy, disagrees: {_VERDICTS[self.protego]}"
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

    def _describe_file(self, now: float) -> str:
        if self.requested_at is None:
            return "the given file"
        age = format_seconds(now - self.requested_at)
        return f"{robots_url(self.origin)}, {self.status or 'no response'}, {age} old"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether a bot may fetch a URL. Times are epoch seconds, durations are seconds.

    The fields after ``robots`` are None for the answer of a robots.txt file outside of a project.
    """

    url: str
    bot: str  #: the name of the bot in robots.txt, or as the call names the bot
    allowed: bool | None  #: None if it is undecided
    gate: str | None  #: the check that denies the URL, or cannot decide
    reason: str
    allowed_from: float | None  #: None for now
    robots: RobotsAnswer | None
    blocklist: str | None = None
    host: str | None = None
    delay: float | None = None  #: from the end of one request to the start of the next
    hold_until: float | None = None
    next_request_at: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for ``--json``, with RFC 3339 times in UTC."""
        times = ("allowed_from", "hold_until", "next_request_at")
        values = asdict(self) | {name: rfc3339(getattr(self, name)) for name in times}
        if values["robots"]:
            values["robots"]["requested_at"] = rfc3339(values["robots"]["requested_at"])
        return values

    def as_row(self) -> dict[str, Any]:
        """Return the answer as a row of the table for several bots."""
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
        """Yield the lines for an operator: the verdict, then the answer of each check."""
        if self.host is None or self.delay is None:
            yield f"{self.url}: {self.verdict} for {self.bot}"
            yield from self.robots.lines(now) if self.robots else ()
            return
        hold = ""
        # For a URL that is denied, or allowed later, the hold does not matter.
        if self.hold_until is not None and self.allowed is not False and not self.allowed_from:
            hold = f", but {self.host} is on hold until {format_moment(self.hold_until)}"
        if self.allowed is None:
            yield f"{self.url}: {self.verdict}: {self.reason}{hold}"
        else:
            yield f"{self.url}: {self.verdict}{f' by {self.gate}' if self.gate else ''}{hold}"
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
        yield f"  pacing     {self._describe_pace(self.delay, now)}"

    def _describe_pace(self, delay: float, now: float) -> str:
        hold = f"; on hold until {format_moment(self.hold_until)}" if self.hold_until else ""
        wait = (self.next_request_at or now) - now
        when = f"in {format_seconds(wait)}, {format_moment(now + wait)}" if wait > 0 else "now"
        return f"one request every {format_seconds(delay)}{hold}; next {when}"


class Draft:
    """The text of a robots.txt file, as one bot reads it at the epoch second ``now``.

    ``user_agent`` is the name or the User-Agent of the bot, or `*` for bots without a group. Raises
    WrongCall if it has no name of a bot.
    """

    def __init__(self, body: bytes, user_agent: str, now: float) -> None:
        is_name = user_agent == "*" or is_token(user_agent)
        try:
            token = user_agent if is_name else token_in(user_agent)
        except NoBotName as error:
            raise WrongCall(
                f"{user_agent!r}: {error}; write a name such as GPTBot, or '*'"
            ) from None
        self._user_agent = user_agent
        self._bot = token if " " in user_agent else user_agent
        self._now = now
        self._file = RobotsFile.from_copy(RobotsCopy(now, 200, body), token, "disallow", now)

    def answer(self, url: str) -> Answer:
        """Return whether the bot may fetch a URL."""
        robots = build_robots_answer(self._file, url, self._user_agent, self._now)
        # The file was not fetched from a host.
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


def build_robots_answer(file: RobotsFile, url: str, user_agent: str, now: float) -> RobotsAnswer:
    """Return the answer of a file about a URL at the epoch second ``now``."""
    verdict = file.rules.verdict(url)
    is_fetched = not file.is_replaced
    protego = _protego_allows(file.copy.body or b"", url, user_agent) if is_fetched else None
    return RobotsAnswer(
        origin=origin_of(url),
        requested_at=file.copy.requested_at,
        status=file.copy.status,
        group=file.rules.group if is_fetched else None,
        group_lines=file.rules.lines if is_fetched else (),
        rule=verdict.rule if is_fetched else None,
        line=verdict.line if is_fetched else None,
        crawl_delay=file.rules.crawl_delay,
        request_rate=file.rate(now),
        opens_in=file.closed_for(now),
        comments=file.rules.comments,
        ignored=tuple(f"line {line}: {warning}" for line, warning in file.rules.warnings),
        protego=protego if is_fetched and protego is not verdict.allowed else None,
        reason=file.why(verdict),
    )


def find_url_problem(url: str) -> str | None:
    """Return why a crawl can never request this URL; None if it can."""
    if origin_of(url).startswith(("http://", "https://")):
        return None
    problem = "this is not an http or https URL with a host"
    lacks_scheme = "://" not in url and "." in url.partition("/")[0]
    if lacks_scheme and not find_url_problem(f"https://{url}"):
        return f"{problem}; write https://{url}"
    return problem


def _protego_allows(body: bytes, url: str, user_agent: str) -> bool | None:
    """Return the verdict of Protego; None if Protego cannot read the file or the URL."""
    try:
        return bool(_parse_with_protego(body).can_fetch(url, user_agent))
    except ValueError:  # a number or a URL that Protego cannot read
        return None


@lru_cache(maxsize=1)
def _parse_with_protego(body: bytes) -> Protego:
    return Protego.parse(body.decode("utf-8", errors="ignore"))  # as Scrapy reads it
