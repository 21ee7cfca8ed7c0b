"""What the resolver of a `DirectWeb` answers to the lookup of a name."""

import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

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
