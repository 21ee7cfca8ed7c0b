"""The lines of a robots.txt about one bot, as people are shown them."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from walsh_scrapy.policy.robots.records import LONGEST_RECORD, decode, readable
from walsh_scrapy.policy.robots.robotstxt import RobotsTxt
from walsh_scrapy.policy.wording import cut, printable

#: A file of at most so many lines is quoted whole.
MOST_LINES: Final = 30


class QuotedLine(NamedTuple):
    """One line as the site wrote it, printable, cut if it is long."""

    number: int  #: from 1
    text: str


def quote(body: bytes, token: str, deciding: Iterable[int] = ()) -> tuple[QuotedLine, ...]:
    """Return a short file whole; of a long one the lines that are about a bot.

    Those are the User-agent lines of its group, the records of its group other than Allow and
    Disallow, and the ``deciding`` lines. Never raises.
    """
    lines = decode(body)[1:].split("\n")
    if lines[-1] == "":
        lines.pop()
    wanted: Iterable[int] = range(1, len(lines) + 1)
    if len(lines) > MOST_LINES:
        rules = RobotsTxt.parse(body).rules_for(token)
        own = {*rules.lines[:MOST_LINES], *rules.other_lines[:MOST_LINES], *deciding}
        wanted = sorted(own.intersection(wanted))
    return tuple(QuotedLine(number, _printable(lines[number - 1])) for number in wanted)


def _printable(line: str) -> str:
    return cut(printable(readable(line)), LONGEST_RECORD)
