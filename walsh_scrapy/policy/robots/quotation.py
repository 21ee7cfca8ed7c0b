"""The lines of a robots.txt that people are shown: about one bot, and about use.

Records about the use of what was fetched (Content-Signal, TDMRep and the like) change no verdict,
because no rule of R1 to R9 asks for more than metadata only (R6). Operators are shown them, and the
copies of decision 33 have them.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from walsh_scrapy.policy.robots.records import (
    LONGEST_RECORD,
    decode,
    line_numbers,
    readable,
    record_at,
)
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
    Disallow, records about use, and the ``deciding`` lines. Never raises.
    """
    lines = decode(body)[1:].split("\n")
    if lines[-1] == "":
        lines.pop()
    wanted: Iterable[int] = range(1, len(lines) + 1)
    if len(lines) > MOST_LINES:
        rules = RobotsTxt.parse(body).rules_for(token)
        used = (record.line for record in usage_records(body))
        own = {*rules.lines[:MOST_LINES], *rules.other_lines[:MOST_LINES], *used, *deciding}
        wanted = sorted(own.intersection(wanted))
    return tuple(QuotedLine(number, _printable(lines[number - 1])) for number in wanted)


def _printable(line: str) -> str:
    return cut(printable(readable(line)), LONGEST_RECORD)


#: Records that are returned; a file may have thousands.
MOST_RECORDS: Final = 20
#: `Content-Signal` (contentsignals.org), `Content-Usage` (IETF aipref), `ai-usage`, and the names
#: of the TDM Reservation Protocol.
_KEYS: Final = "content-signals?|content-usage|ai-usage|tdm-reservation|tdm-policy|tdmrep"
_RECORD: Final = re.compile(rf"\n[ \t\v\f]*+(?:{_KEYS})[ \t\v\f]*+:", re.IGNORECASE | re.ASCII)


class UsageRecord(NamedTuple):
    """One record about use."""

    line: int  #: from 1
    text: str  #: as the site wrote it, printable, without its comment


def usage_records(body: bytes) -> tuple[UsageRecord, ...]:
    """Return the records about use in a robots.txt, in order, at most `MOST_RECORDS`.

    They count for the whole file, whichever group they stand in. Never raises.
    """
    return tuple(_records(decode(body)))


def _records(text: str) -> Iterator[UsageRecord]:
    found = (record.start() for record in _RECORD.finditer(text))
    offsets = [offset for offset, _ in zip(found, range(MOST_RECORDS), strict=False)]
    for line, offset in zip(line_numbers(text, offsets), offsets, strict=True):
        yield UsageRecord(line, record_at(text, offset))
