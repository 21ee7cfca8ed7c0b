"""A visit of a source: what its requests know, as one object in ``request.meta``.

Copies, retries and redirects of a request keep it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from walsh_scrapy.policy.moves import Move
    from walsh_scrapy.sources import Source

_KEY: Final = "walsh_visit"
#: Scrapy's flag of a response whose body is not complete.
DATA_LOSS: Final = "dataloss"


class Lifetime(NamedTuple):
    """The freshness lifetime of one response: its URL, and its end in epoch seconds."""

    url: str
    until: float


class Page(NamedTuple):
    """What the response of the declared page said, if the visit continues with another document."""

    is_gone: bool  #: it is gone for good (410)
    move: Move | None  #: where it moved to, as far as this visit shows


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit of a source. ``source`` is None if its outcome is not recorded."""

    source: Source | None
    readable: Callable[[str], bool]  #: takes a Content-Type; False: the body is not downloaded
    llmstxt: str | None = None  #: the URL of the requested llms.txt, before redirects
    announced: tuple[str, ...] = ()  #: URLs that the page announces as markdown: declared too
    lifetimes: tuple[Lifetime, ...] = ()  #: of the earlier responses of the visit
    page: Page | None = None
    unread: str | None = None  #: the Content-Type of a body that was not downloaded

    def passed(self, lifetime: Lifetime) -> Visit:
        """Return the visit with the lifetime of one more response."""
        return replace(self, lifetimes=(*self.lifetimes, lifetime))

    def carried_to(self, following: Visit) -> Visit:
        """Return the visit of the next request, with what this request has learned."""
        return replace(
            following, announced=self.announced, lifetimes=self.lifetimes, page=self.page
        )


def visit_of(request: Request) -> Visit | None:
    """Return the visit that a request belongs to, if any."""
    visit: Visit | None = request.meta.get(_KEY)
    return visit


def set_visit(request: Request, visit: Visit) -> None:
    """Make a request part of a visit."""
    request.meta[_KEY] = visit


def source_of(request: Request) -> Source | None:
    """Return the declared source of a request, if any."""
    visit = visit_of(request)
    return visit.source if visit else None
