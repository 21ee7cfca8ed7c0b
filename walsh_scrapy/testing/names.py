"""The resolver of a `DirectWeb`, and what it answers to the lookup of a name.

It answers the processes that `direct/sitecustomize.py` is in. A question is the port and the name.
The answer is an error code of `getaddrinfo`, or 0, and then a line for each address: the address,
and the port at which the web serves that port of it.
"""

import asyncio
import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from walsh_scrapy.testing.hit import SharedLog

#: In the place of an address: the site's own, of which every site has one.
OWN: Final = "own"
#: In the place of an address: one that answers no SYN, so a connection is never made or refused.
DEAD: Final = "dead"
#: In the place of an address: one that refuses connections.
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one lookup: addresses in this order, or an error.

    Addresses may be IPv4 or IPv6, anywhere. Only those in 127.0.0.0/8 and `::1` lead to the web,
    those spelled `::ffff:127.0.0.1` too.
    """

    addresses: Sequence[str] = (OWN,)
    error: int = 0  #: a code of `getaddrinfo`, `socket.EAI_AGAIN` for example, instead
    delay: float = 0.0  #: seconds for which the lookup blocks


#: The site's own address.
RIGHT: Final = Answer()
#: The name does not exist.
UNKNOWN: Final = Answer((), socket.EAI_NONAME)
#: There is no resolver at all: the lookup fails at once.
NO_RESOLVER: Final = Answer((), socket.EAI_AGAIN)

#: One answer to every lookup, or answers to successive lookups, of which the last one repeats.
Dns: TypeAlias = Answer | Sequence[Answer]


def silent(seconds: float = 10.0) -> Answer:
    """Return what glibc makes of silent name servers: a long wait, then EAI_AGAIN."""
    return Answer((), socket.EAI_AGAIN, seconds)


def answers_of(dns: Dns) -> Sequence[Answer]:
    """Return the answers to successive lookups."""
    return [dns] if isinstance(dns, Answer) else dns


@dataclass(frozen=True, slots=True)
class Lookup:
    """One lookup of a name, by the `time.monotonic` of the resolver."""

    name: str  #: lower-case, without a trailing dot
    started: float
    ended: float = math.inf  #: when the answer was sent; infinite until then
    addresses: tuple[str, ...] = ()
    error: int = 0  #: a code of `getaddrinfo`, or 0


#: The system's own buffer holds about 250 questions.
_BUFFER_BYTES: Final = 1 << 22

Place = tuple[str, int]


class NameServer(asyncio.DatagramProtocol):
    """Answers lookups one by one, each after its own delay, and logs them.

    `dns_of` returns what is answered for a name. `places` turns a name,
    the addresses of an answer and a port into addresses and ports.
    """

    def __init__(
        self,
        dns_of: Callable[[str], Dns],
        places: Callable[[str, Sequence[str], int], list[Place]],
        log: SharedLog[Lookup],
    ) -> None:
        self._dns_of = dns_of
        self._places = places
        self._log = log
        self._counts: Counter[str] = Counter()
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Begin to answer."""
        self._transport = transport
        server: socket.socket = transport.get_extra_info("socket")
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)

    def datagram_received(self, data: bytes, sender: Place) -> None:
        """Answer a question, now or later."""
        number, _, given = data.decode().partition(" ")
        name = given.lower().removesuffix(".")
        self._counts[name] += 1
        answers = answers_of(self._dns_of(name))
        answer = answers[min(self._counts[name], len(answers)) - 1]
        key = self._log.open(Lookup(name, time.monotonic()))
        asyncio.get_running_loop().call_later(
            answer.delay, self._answer, key, name, int(number), answer, sender
        )

    def _answer(self, key: int, name: str, port: int, answer: Answer, sender: Place) -> None:
        places = self._places(name, answer.addresses, port)
        addresses = tuple(address for address, _ in places)
        self._log.change(
            key,
            lambda lookup: replace(
                lookup, ended=time.monotonic(), addresses=addresses, error=answer.error
            ),
        )
        lines = [str(answer.error), *(f"{address} {listens}" for address, listens in places)]
        if self._transport:
            self._transport.sendto("\n".join(lines).encode(), sender)
