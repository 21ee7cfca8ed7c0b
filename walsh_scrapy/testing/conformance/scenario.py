"""A scenario: hosts that ask something of a crawler, and the judge of what they saw.

The hosts have names under `.example`. In front of a web without names the same scenarios have
addresses in their place: see `walsh_scrapy.testing.conformance.places`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.evidence import Evidence, Finding, Run
from walsh_scrapy.testing.feeds import Post, rss
from walsh_scrapy.testing.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.reply import Page
    from walsh_scrapy.testing.site import Site

_COMPATIBLE: Final = re.compile(r"compatible;\s*([A-Za-z_-]+)")
_PRODUCT: Final = re.compile(r"[A-Za-z_-]+")
_FEED: Final = rss("Feed", [Post("One", link=None, id="tag:feed.example,2026:1")], "")


class Level(StrEnum):
    """How much the contract asks for it. What a crawler MAY do is never failed."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One requirement, the sites that ask for it, the URLs that a crawler is given, the judge.

    `pages` are URLs of feed-less sites. They are given apart from the seeds, which are feeds.
    """

    name: str
    rule: str  #: R1 to R9
    asks: str  #: what is required, as a sentence without a full stop
    judge: Callable[[Evidence], Finding]
    sites: tuple[Site, ...] = ()
    seeds: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    runs: tuple[Run, ...] = (Run.FIRST,)
    level: Level = Level.MUST

    @property
    def hosts(self) -> frozenset[str]:
        """The names of the scenario's hosts."""
        return frozenset(site.host for site in self.sites)


def feed(body: str = _FEED, *, etag: str | None = None, modified: str | None = None) -> Reply:
    """Return a feed without links."""
    return Reply(body, content_type="application/rss+xml", etag=etag, last_modified=modified)


def robots(text: str, *, content_type: str = "text/plain", end: str = "\n") -> Page:
    """Return a robots.txt in which `{token}` is the product token of whoever asks for it.

    `{closed}` becomes a window of Visit-time that opens in two hours. `end` is put in the place of
    each line end.
    """

    def page(hit: Hit) -> Reply:
        token = token_of(hit.header("User-Agent") or "")
        hour = int(hit.wall // 3600) % 24
        closed = f"{(hour + 2) % 24:02}00-{(hour + 3) % 24:02}00"
        body = text.replace("{token}", token).replace("{TOKEN}", token.upper())
        body = body.replace("{closed}", closed).replace("\n", end)
        return Reply(body.encode(), content_type=content_type)

    return page


def token_of(user_agent: str) -> str:
    """Return the product token of a User-Agent: after `compatible;`, else its first word."""
    found = _COMPATIBLE.search(user_agent)
    if found:
        return found[1]
    product = _PRODUCT.search(user_agent)
    return product[0] if product else "nobody"
