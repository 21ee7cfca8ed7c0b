"""Reads the logs of one host, and counts what each bot did.

One bot is a User-Agent that names itself and a page about it, over all its addresses. Any other
User-Agent, as of feed readers and libraries, is another bot at each address. Browsers are people,
and a log without User-Agents has people too: whoever asks there for robots.txt is a bot.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import IO, TYPE_CHECKING, Final

from walsh_scrapy.testing.judgelog import jsonlines
from walsh_scrapy.testing.judgelog.agent import MOST_ADDRESSES, Agent, Answered
from walsh_scrapy.testing.judgelog.layouts import Layout
from walsh_scrapy.testing.judgelog.lines import LONGEST_REQUEST, NAMELESS, UNKNOWN
from walsh_scrapy.testing.judgelog.logfile import lines_of
from walsh_scrapy.testing.judgelog.robots import Robots
from walsh_scrapy.testing.useragent import Sender, sender_of, token_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.testing.judgelog.lines import Line

#: Bots that are told apart; the requests of further ones are only counted.
MOST_AGENTS: Final = 100_000
#: Addresses that are kept, of all bots together.
MOST_ADDRESSES_KEPT: Final = 200_000
#: Bytes of a User-Agent by which it is known, and of an address.
LONGEST_AGENT: Final = 1000
_LONGEST_ADDRESS: Final = 60
#: Addresses of a proxy in front of the server, or of its own machines: many clients may have one.
_SHARED: Final = re.compile(
    rb"(?:127|10|192\.168|169\.254|172\.(?:1[6-9]|2\d|3[01])|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7]))\."
    rb"|::1$|f[cd][0-9a-f]{2}:|fe80:",
    re.IGNORECASE,
).match
_NOWHERE: Final = (b"", b"-")
#: Whose requests are not judged: a key of `Judge.apart`.
BROWSERS: Final = "browsers"
OTHERS: Final = "other User-Agents than --agent names"
SILENT: Final = "addresses that never asked for robots.txt, in a log without User-Agents"
SHARED: Final = "programs at an address that many may share"
BEYOND: Final = "further bots"
#: Who sends a User-Agent: one bot, bots by address, or whose requests they are if not judged.
_Senders = Agent | dict[bytes, Agent] | str


class Judge:
    """Counts the requests of each bot, or of those that have ``wanted`` in their User-Agent."""

    def __init__(self, robots: bytes, wanted: str = "", written: str | None = None) -> None:
        """``written`` is the format of the log; None if it may be JSON or one of `KNOWN`.

        Raises ValueError if a format lacks a field.
        """
        self.robots = Robots(robots)
        self._wanted = wanted.lower()
        self._senders: dict[bytes, _Senders] = {}
        self._agents: list[Agent] = []
        self._answered = Answered()
        self._addresses = 0
        self._layout = Layout.known() if written is None else Layout.of(written)
        self.may_be_json = written is None
        self.apart: Counter[str] = Counter()  #: requests that are not judged, by whose they are
        self.unread = 0  #: lines that are in another format
        self.read = 0  #: lines that are not
        #: Lines that do not say when their request began, but only a time before which it did.
        self.vague = 0
        self.missing = set[str]()  #: what lines of JSON lack, as in `jsonlines.NEEDED`

    def read_log(self, file: IO[bytes], name: str) -> None:
        """Read one log; ``name`` is said of the places in it."""
        number, read, senders, json = 0, self._layout.read, self._senders, self.may_be_json
        for lines in lines_of(file):
            for written in lines:
                number += 1
                is_json = json and written[:1] == b"{"
                line = jsonlines.read(written, self.missing) if is_json else read(written)
                if line is None:
                    self.unread += bool(written.strip())
                    continue
                self.read += 1
                sender = senders.get(line.agent)
                if not isinstance(sender, Agent):
                    sender = self._sender_of(line, sender)
                if isinstance(sender, str):
                    self.apart[sender] += 1
                else:
                    self.vague += line.slack >= LONGEST_REQUEST
                    if line.address and line.address not in sender.addresses:
                        self._add_address(sender, line.address)
                    sender.add(line, name, number, self._answered)

    def agents(self) -> Iterator[Agent]:
        """Yield each bot that was judged, the one with the most requests first."""
        yield from sorted(self._agents, key=lambda each: (-each.requests, each.name, each.address))

    def _sender_of(self, line: Line, sender: _Senders | None) -> Agent | str:
        """Return the bot of a line, which may be new, or whose request it is if not judged."""
        if sender is None:
            written = line.agent[:LONGEST_AGENT]
            sender = self._senders.get(written)
            sender = self._add_sender(written) if sender is None else sender
        if isinstance(sender, dict):
            address = line.address[:_LONGEST_ADDRESS]
            return sender.get(address) or self._add_at(sender, address, line)
        return sender

    def _add_sender(self, written: bytes) -> _Senders:
        sender: _Senders
        name = (written or NAMELESS).decode("utf-8", "replace")
        kind = Sender.MANY if written in (NAMELESS, UNKNOWN) else sender_of(name)
        if self._wanted not in name.lower():
            sender = OTHERS
        elif kind is Sender.PERSON and not self._wanted:
            sender = BROWSERS
        elif kind is Sender.BOT:
            sender = self._add_agent(name, "")
        elif len(self._senders) < MOST_AGENTS:
            sender = {}
        else:
            sender = BEYOND
        if len(self._senders) < MOST_AGENTS or isinstance(sender, Agent):
            self._senders[written] = sender
        return sender

    def _add_at(self, agents: dict[bytes, Agent], address: bytes, line: Line) -> Agent | str:
        """Return the new bot of a User-Agent at an address, or why it is none."""
        written = line.agent[:LONGEST_AGENT]
        is_shared = not self._wanted and _SHARED(address)
        if is_shared or address in _NOWHERE:
            return SHARED
        if written == UNKNOWN and not self._wanted and line.target != b"/robots.txt":
            return SILENT
        name, place = (each.decode("utf-8", "replace") for each in (written or NAMELESS, address))
        agent = self._add_agent(name, place)
        if isinstance(agent, Agent):
            agents[address] = agent
        return agent

    def _add_agent(self, name: str, address: str) -> Agent | str:
        if len(self._agents) >= MOST_AGENTS:
            return BEYOND
        token = token_of(name) or "*"
        agent = Agent(name, address, token, self.robots, len(self._agents))
        self._agents.append(agent)
        return agent

    def _add_address(self, agent: Agent, address: bytes) -> None:
        address = address[:_LONGEST_ADDRESS]
        if address in agent.addresses:
            return
        if len(agent.addresses) < MOST_ADDRESSES and self._addresses < MOST_ADDRESSES_KEPT:
            agent.addresses[address] = None
            self._addresses += 1
        else:
            agent.more_addresses = True
