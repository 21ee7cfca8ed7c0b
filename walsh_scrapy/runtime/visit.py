"""A visit: what the requests for one declared source carry from hop to hop, as one object.

It is in ``request.meta``, so copies, retries and redirects keep it.
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
    """What the declared page answered, when the visit goes on with another document."""

    is_gone: bool  #: it is gone for good (410)
    move: Move | None  #: where it moved to, as far as this visit shows


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit of a source. ``source`` is None where nothing of it is to be recorded."""

    source: Source | None
    readable: Callable[[str], bool]  #: of a Content-Type: is the body worth its bytes?
    llmstxt: str | None = None  #: the llms.txt that is asked for, wherever redirects lead
    announced: tuple[str, ...] = ()  #: what the page announces as its markdown: declared with it
    lifetimes: tuple[Lifetime, ...] = ()  #: of the responses on the way here
    page: Page | None = None
    unread: str | None = None  #: the Content-Type of a body that was not downloaded

    def passed(self, lifetime: Lifetime) -> Visit:
        """Return the visit after one more response on its way."""
        return replace(self, lifetimes=(*self.lifetimes, lifetime))

    def carried_to(self, following: Visit) -> Visit:
        """Return the visit of the next request, with what this one has learned."""
        return replace(
            following, announced=self.announced, lifetimes=self.lifetimes, page=self.page
        )


def visit_of(request: Request) -> Visit | None:
    """Return the visit that a request belongs to, if any."""
    visit: Visit | None = request.meta.get(_KEY)
    return visit


def set_visit(request: Request, visit: Visit) -> None:
    """Let a request belong to a visit."""
    request.meta[_KEY] = visit


def source_of(request: Request) -> Source | None:
    """Return the declared source that a request is made for, if any."""
    visit = visit_of(request)
    return visit.source if visit else None
