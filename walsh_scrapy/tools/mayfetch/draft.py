"""What a robots.txt would say of URLs to any bots: no project, no state, no request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.robots.access import RobotsCopy, RobotsFile
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.useragent import product_token
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.tools.mayfetch.answer import verdict_of
from walsh_scrapy.tools.mayfetch.robots import robots_answer
from walsh_scrapy.tools.printable import columns, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.tools.mayfetch.answer import RobotsAnswer

_HEADINGS: Final = ("bot", "verdict", "group", "line", "rule", "pause", "Protego", "URL")


@dataclass(frozen=True, slots=True)
class DraftAnswer:
    """What a robots.txt says of one URL to one bot."""

    url: str
    bot: str  #: as it was named in the call
    allowed: bool
    allowed_from: float | None  #: epoch seconds, if Visit-time opens later than now
    robots: RobotsAnswer

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for ``--json``."""
        return asdict(self) | {"allowed_from": rfc3339(self.allowed_from)}

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return verdict_of(self.allowed, self.allowed_from)

    def lines(self, now: float) -> Iterator[str]:
        """Yield the answer for people."""
        yield f"{self.url}: {self.verdict} for {self.bot}"
        yield from self.robots.lines(now)


class Draft:
    """A robots.txt as one bot reads it, at an epoch second.

    The bot is named by its token or its User-Agent; `*` stands for every bot that has no group of
    its own. Raises ValueError if the name names no bot.
    """

    def __init__(self, body: bytes, user_agent: str, now: float) -> None:
        token = "*" if user_agent == "*" else product_token(user_agent)
        if token is None:
            raise ValueError(f"{user_agent!r} names no bot; write its name in robots.txt, or '*'")
        self._user_agent = user_agent
        self._bot = token if " " in user_agent else user_agent
        self._now = now
        self._file = RobotsFile.read(RobotsCopy(now, 200, body), token, "disallow", now)

    def answer(self, url: str) -> DraftAnswer:
        """Return what the file says of a URL."""
        robots = robots_answer(self._file, url, self._user_agent, self._now, given=True)
        allowed = self._file.rules.verdict(url).allowed
        is_closed = allowed and robots.opens_in > 0
        opening = self._now + robots.opens_in if is_closed else None
        return DraftAnswer(url, self._bot, allowed, opening, robots)


def draft_table(answers: Sequence[DraftAnswer]) -> Iterator[str]:
    """Yield a line for each answer, nothing cut or wrapped."""
    return columns([_HEADINGS, *map(_cells, answers)])


def _cells(answer: DraftAnswer) -> tuple[str, ...]:
    robots = answer.robots
    pause = max(robots.crawl_delay or 0.0, robots.request_rate or 0.0)
    theirs = "-" if robots.protego is None else verdict_of(robots.protego, None)
    cells = (
        answer.bot,
        answer.verdict,
        robots.group or "-",
        str(robots.line or "-"),
        robots.rule or "-",
        format_seconds(pause) if pause else "-",
        theirs,
        answer.url,
    )
    return tuple(map(printable, cells))
