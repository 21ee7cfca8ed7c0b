"""The gates and their order: the add-on sets it, and each gate that is used alone checks it.

The order is that of the contract: the URL as it is sent first, then opt-outs before scope, scope
before a host name is resolved, all of these before robots.txt, and pacing last before the wire.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from scrapy.utils.misc import load_object

if TYPE_CHECKING:
    from typing import Any

_OURS: Final = "walsh_scrapy.downloadermiddlewares"


class Gate(Enum):
    """A gate by its path and its order in ``DOWNLOADER_MIDDLEWARES``."""

    ADDRESS = f"{_OURS}.addresses.AddressMiddleware", 1
    DENIALS = f"{_OURS}.denials.DenialsMiddleware", 5
    BLOCKLIST = f"{_OURS}.blocklist.BlocklistMiddleware", 10
    SCOPE = "walsh_scrapy.spidermiddlewares.scope.ScopeMiddleware", 15
    PUBLICWEB = f"{_OURS}.publicweb.PublicWebMiddleware", 20
    ROBOTS = f"{_OURS}.robots.RobotsMiddleware", 100
    BACKOFF = f"{_OURS}.backoff.BackoffMiddleware", 549
    CONDITIONAL = f"{_OURS}.conditional.ConditionalMiddleware", 560
    COMPRESSION = f"{_OURS}.compression.CompressionMiddleware", 590
    REDIRECT = f"{_OURS}.redirect.RedirectMiddleware", 600
    IDENTITY = f"{_OURS}.identity.IdentityMiddleware", 860
    PACING = f"{_OURS}.pacing.PacingMiddleware", 890

    def __init__(self, path: str, order: int) -> None:
        self.path = path
        self.order = order

    @property
    def kind(self) -> type[Any]:
        """The class of the gate, which is imported only then."""
        kind: type[Any] = load_object(self.path)
        return kind


#: Middlewares of Scrapy that our gates replace.
REPLACED: Final = (
    "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware",
    "scrapy.downloadermiddlewares.redirect.RedirectMiddleware",
    "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware",
)
#: In ``SPIDER_MIDDLEWARES``. The scope gate is both a downloader and a spider middleware.
SPIDER_GATES: Final = {
    Gate.SCOPE.path: 20,
    "walsh_scrapy.spidermiddlewares.firstseen.FirstSeenMiddleware": 30,
    "walsh_scrapy.spidermiddlewares.room.RoomMiddleware": 40,
}
