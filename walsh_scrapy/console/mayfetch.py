"""``walsh mayfetch``: what a robots.txt says of URLs to any bots."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.robots.copy import RobotsCopy, RobotsFile
from walsh_scrapy.policy.robots.robotstxt import token_of
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.files import read_file
from walsh_scrapy.tools.mayfetch.answer import (
    NO_URL,
    is_web,
    robots_answer,
    scheme_hint,
    verdict_of,
)
from walsh_scrapy.tools.output import columns, print_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from walsh_scrapy.tools.mayfetch.answer import RobotsAnswer

_NO_FILE: Final = (
    "which robots.txt? Give it with --robots FILE, or pipe it in: "
    "curl -s https://blog.example/robots.txt | walsh mayfetch --robots - URL"
)


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the program."""
    parser = commands.add_parser(
        "mayfetch",
        help="say what a robots.txt allows to any bots",
        description="Says for each URL and bot whether a robots.txt allows it, and which line "
        "decides. Sends nothing. Exit status: 0 all allowed, 1 at least one denied, 2 wrong call.",
    )
    parser.add_argument("url", nargs="+", metavar="URL", help="a URL of the site, with its scheme")
    parser.add_argument("--robots", metavar="FILE", help="the robots.txt, '-' for standard input")
    parser.add_argument(
        "--user-agent",
        metavar="NAME",
        action="append",
        help=f"a bot, by its name in robots.txt or its User-Agent; may be repeated ({UA_TOKEN})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the answers; return 0 if all are allowed, or else 1. Raises CommandError."""
    if options.robots is None:
        raise CommandError(_NO_FILE)
    _check(options.url)
    now = time.time()
    body = read_file(options.robots)
    try:
        drafts = [Draft(body, bot, now) for bot in options.user_agent or [UA_TOKEN]]
        answers = [draft.answer(url) for url in options.url for draft in drafts]
    except ValueError as error:
        raise CommandError(str(error)) from error
    if options.json:
        lines: Iterable[str] = (json.dumps(answer.as_dict()) for answer in answers)
    elif options.user_agent is not None and len(options.user_agent) > 1:
        lines = draft_table(answers)
    else:
        lines = (line for answer in answers for line in answer.lines(now))
    print_lines(lines)
    return 0 if all(answer.allowed for answer in answers) else 1


def _check(urls: list[str]) -> None:
    """Raise CommandError for what is no URL of the web."""
    for url in urls:
        if not is_web(url):
            raise CommandError(f"{url}: {NO_URL}{scheme_hint(url)}")


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
        token = "*" if user_agent == "*" else token_of(user_agent)
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
    return (
        answer.bot,
        answer.verdict,
        robots.group or "-",
        str(robots.line or "-"),
        robots.rule or "-",
        format_seconds(pause) if pause else "-",
        theirs,
        answer.url,
    )
