"""The gates, each one record: settings, start-up checks, summary and report read them here.

The order is that of the contract: the URL as it is sent first, then opt-outs before scope, scope
before a host name is resolved, all of these before robots.txt, and pacing last before the wire.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from scrapy.utils.misc import load_object

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_SCRAPYS: Final = "scrapy.downloadermiddlewares"
_SCOPE: Final = "walsh_scrapy.spidermiddlewares.scope.ScopeMiddleware"
_SCOPE_ADVICE: Final = "No source may be that. Take it out. To see why:"
_PUBLIC_ADVICE: Final = "Its address is not public. Correct it, or take it out."
_LIST_ADVICE: Final = "It is on a blocklist. Take it out of the sources file. To see on which:"
_ROBOTS_ADVICE: Final = (
    "Its robots.txt does not allow it. Ask its owner, or take it out. To see the rule:"
)


class Gate(Enum):
    """A gate: its order in ``DOWNLOADER_MIDDLEWARES`` and its class, both as settings have them.

    ``advice`` is what an operator is told to do when the gate denies a source; None if it denies
    nothing. ``replaces`` is the middleware of Scrapy in whose place it is. A class without a path
    is in ``walsh_scrapy.downloadermiddlewares``.
    """

    ADDRESS = 1, "addresses.AddressMiddleware"
    DENIALS = 5, "denials.DenialsMiddleware"
    BLOCKLIST = 10, "blocklist.BlocklistMiddleware", _LIST_ADVICE
    SCOPE = 15, _SCOPE, _SCOPE_ADVICE
    PUBLICWEB = 20, "publicweb.PublicWebMiddleware", _PUBLIC_ADVICE
    ROBOTS = 100, "robots.RobotsMiddleware", _ROBOTS_ADVICE, "robotstxt.RobotsTxtMiddleware"
    BACKOFF = 549, "backoff.BackoffMiddleware"
    CONDITIONAL = 560, "conditional.ConditionalMiddleware"
    COMPRESSION = (
        590,
        "compression.CompressionMiddleware",
        None,
        "httpcompression.HttpCompressionMiddleware",
    )
    REDIRECT = 600, "redirect.RedirectMiddleware", None, "redirect.RedirectMiddleware"
    IDENTITY = 860, "identity.IdentityMiddleware"
    PACING = 890, "pacing.PacingMiddleware"

    def __init__(
        self, order: int, path: str, advice: str | None = None, replaces: str | None = None
    ) -> None:
        is_whole = path.startswith("walsh_scrapy.")
        self.order = order
        self.path = path if is_whole else f"walsh_scrapy.downloadermiddlewares.{path}"
        self.advice = advice
        self.replaces = replaces and f"{_SCRAPYS}.{replaces}"

    @property
    def label(self) -> str:
        """The name of the gate in stats and in ``Denied``."""
        return self.name.lower()

    @property
    def kind(self) -> type[Any]:
        """The class of the gate, which is imported only then."""
        kind: type[Any] = load_object(self.path)
        return kind


#: Middlewares of Scrapy that our gates replace.
REPLACED: Final = tuple(gate.replaces for gate in Gate if gate.replaces)
#: In ``SPIDER_MIDDLEWARES``. The scope gate is both a downloader and a spider middleware.
SPIDER_GATES: Final = {
    Gate.SCOPE.path: 20,
    "walsh_scrapy.spidermiddlewares.firstseen.FirstSeenMiddleware": 30,
    "walsh_scrapy.spidermiddlewares.room.RoomMiddleware": 40,
}
#: What an operator is told to do when a gate denies a source, by the gate's name in the stats.
ADVICE: Final = {gate.label: gate.advice for gate in Gate if gate.advice is not None}


def gate_names(found: Iterable[str]) -> list[str]:
    """Return the names of the gates that deny, then those that are found of other gates."""
    return [*ADVICE, *sorted(set(found) - ADVICE.keys())]
