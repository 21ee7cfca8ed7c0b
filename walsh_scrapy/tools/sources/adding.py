"""``scrapy sources add``: which source a URL that discover asked for stands for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.tools.discover.report import TRY, kind_of
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.sources import Source
    from walsh_scrapy.tools.discover.candidates import Candidate, SiteOffer


class Choice(NamedTuple):
    """The source to declare for a URL; None with the lines that say why there is none."""

    source: Source | None
    lines: tuple[str, ...] = ()  #: for the operator


def choose(offer: SiteOffer) -> Choice:
    """Return the source that an offer stands for.

    A feed is itself. Any other page stands for the one feed that it declares, feeds of comments
    apart, or else for its markdown or its llms.txt. Where it declares several feeds, the operator
    has to choose.
    """
    choices = offer.choices
    if len(choices) > 1:
        head = f"{offer.url} declares several feeds; give the URL of one to add it:"
        return Choice(None, (head, *map(_shown, offer.feeds)))
    unsure = any(each.unsure for each in offer.feeds) and not offer.has_feed
    if choices and not unsure:
        return Choice(_named(offer.source_of(choices[0])), tuple(_others(offer)))
    unsure = unsure or offer.is_usable is None
    head = (
        "cannot say yet what is there" if unsure else f"nothing to declare was found there; {TRY}"
    )
    tried = (f"  {each.url}: {each.outcome}" for each in offer.candidates if each.requested)
    return Choice(None, (f"{offer.url}: {head}", *tried))


def _others(offer: SiteOffer) -> Iterator[str]:
    """Yield the other feeds that a page declares, which were left out."""
    others = [each for each in offer.feeds if each not in offer.choices]
    if others:
        yield f"{offer.url} declares these feeds too, which were not added:"
        yield from map(_shown, others)


def _shown(candidate: Candidate) -> str:
    title = f" {candidate.title!r}" if candidate.title else ""
    return f"  {candidate.url}{title} ({kind_of(candidate)})"


def _named(source: Source) -> Source:
    """Return the source with its title on one line, as every format can hold it."""
    if source.name is None:
        return source
    return replace(source, name=" ".join(printable(source.name).split()) or None)
