"""Reads the logs of one host, and counts what each User-Agent did."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.policy.robots.records import token_of
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.testing.judgelog import jsonlines
from walsh_scrapy.testing.judgelog.agent import Agent, GroupTerms
from walsh_scrapy.testing.judgelog.layouts import NAMELESS, Layout
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes that are read at once.
_BLOCK: Final = 1 << 20
#: Bytes of a line that are read; a longer one is cut.
LONGEST_LINE: Final = 1 << 16
#: User-Agents that are told apart; the requests of further ones are only counted.
MOST_AGENTS: Final = 100_000
#: Bytes of a User-Agent by which it is known.
LONGEST_AGENT: Final = 1000
#: Browsers that call themselves "compatible".
_BROWSERS: Final = ("msie", "konqueror")
_NAMES_NOBODY: Final = (b"", NAMELESS)


class Judge:
    """Counts the requests of each User-Agent that names a crawler, or has ``wanted`` in its name.

    Requests of browsers are counted together in ``others``: each is of another person, to whom no
    robots.txt applies.
    """

    def __init__(self, robots: bytes, wanted: str = "", written: str | None = None) -> None:
        """``written`` is the format of the log; None if it may be JSON or one of `KNOWN`.

        Raises CommandError if a format lacks a field.
        """
        self._robots = RobotsTxt.parse(robots)
        self._wanted = wanted.lower()
        self._terms: dict[str, GroupTerms] = {}
        self._agents: dict[bytes, Agent] = {}
        self._unjudged: set[bytes] = set()
        self._layout = Layout.known() if written is None else Layout.of(written)
        self.may_be_json = written is None
        self.others = 0  #: requests that are not judged
        self.unread = 0  #: lines that are in another format
        self.read = 0  #: lines that are not
        #: Lines that do not say when their request began, but only when it ended.
        self.vague = 0
        self.missing = set[str]()  #: what lines of JSON lack, as in `jsonlines.NEEDED`

    def read_log(self, file: IO[bytes], name: str) -> None:
        """Read one log; ``name`` is said of the places in it."""
        number, read, agents, json = 0, self._layout.read, self._agents, self.may_be_json
        for lines in lines_of(file):
            for written in lines:
                number += 1
                is_json = json and written[:1] == b"{"
                line = jsonlines.read(written, self.missing) if is_json else read(written)
                if line is None:
                    self.unread += bool(written.strip())
                    continue
                self.read += 1
                agent = agents.get(line.agent) or self._find(line.agent)
                if agent is None:
                    self.others += 1
                else:
                    self.vague += bool(line.slack)
                    agent.add(line, name, number)

    def agents(self) -> Iterator[tuple[str, Agent]]:
        """Yield each User-Agent that was judged, the one with the most requests first."""
        judged = sorted(self._agents.items(), key=lambda pair: (-pair[1].requests, pair[0]))
        for name, agent in judged:
            yield name.decode("utf-8", "replace"), agent

    def _find(self, written: bytes) -> Agent | None:
        """Return the counts of a User-Agent that is new or long; None if it is not judged."""
        written = written[:LONGEST_AGENT]
        if written in self._agents or written in self._unjudged:
            return self._agents.get(written)
        name = written.decode("utf-8", "replace")
        token = token_of(name)
        is_bot = written in _NAMES_NOBODY or (token or _BROWSERS[0]).lower() not in _BROWSERS
        is_wanted = self._wanted in name.lower() if self._wanted else is_bot
        if is_wanted and len(self._agents) < MOST_AGENTS:
            agent = self._agents[written] = Agent(self._terms_of(token or "*"))
            return agent
        if len(self._unjudged) < MOST_AGENTS:
            self._unjudged.add(written)
        return None

    def _terms_of(self, token: str) -> GroupTerms:
        """Return the terms of a bot; those of one group are shared."""
        rules = self._robots.rules_for(token)
        return self._terms.setdefault(rules.group or "", GroupTerms(rules))


def lines_of(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a file, some thousands at once, without their ends."""
    rest = b""
    # read1 returns what is there, also before a place where a packed file is damaged
    while block := file.read1(_BLOCK):  # type: ignore[attr-defined]
        lines = (rest + block).split(b"\n")
        rest = lines.pop()[:LONGEST_LINE]
        yield lines
    if rest:
        yield [rest]


@contextmanager
def open_log(name: str) -> Iterator[IO[bytes]]:
    """Open a log, packed or not; `-` is standard input. Raises CommandError.

    So does what is read in the block: a packed log may be cut or damaged.
    """
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as raw:
            yield _unpack(raw)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(printable(f"{name} cannot be read: {why}")) from error


def _unpack(raw: IO[bytes]) -> IO[bytes]:
    head = raw.peek(6)  # type: ignore[attr-defined]
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if head.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(raw))
    if head.startswith(b"\xfd7zXZ\0"):
        return cast("IO[bytes]", lzma.LZMAFile(raw))
    return raw
