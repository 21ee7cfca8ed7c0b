"""``scrapy sources add``: which source a URL that discover asked for stands for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.sources import Source, SourcesError, target_url
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.tools.discover.candidates import SiteOffer


class Choice(NamedTuple):
    """The source to declare for a URL; None with the lines that say why there is none."""

    source: Source | None
    lines: tuple[str, ...] = ()


def choose(offer: SiteOffer) -> Choice:
    """Return the source that an offer stands for.

    A feed is itself. Any other page stands for the one feed that its headers announce, or else for
    its markdown or its llms.txt. Where it announces several feeds, the operator has to choose.
    """
    feeds = tuple(_declarable(offer.feeds))
    if offer.page.form == "feed" or (offer.source and not feeds):
        return Choice(_named(offer.source))
    if len(feeds) == 1:
        return Choice(Source(feeds[0]))
    if feeds:
        head = f"{offer.url} announces several feeds; add one of them:"
        return Choice(None, (head, *(f"  {url}" for url in feeds)))
    unsure = offer.is_usable is None
    head = "cannot say yet what is there" if unsure else "nothing to declare was found there"
    tried = (f"  {each.url}: {each.outcome}" for each in offer.candidates if each.requested)
    return Choice(None, (f"{offer.url}: {head} (HTML is not read)", *tried))


def _declarable(urls: tuple[str, ...]) -> Iterator[str]:
    for url in urls:
        try:
            yield target_url(url)
        except SourcesError:
            continue


def _named(source: Source | None) -> Source | None:
    """Return the source with its title on one line, as every format can hold it."""
    if source is None or source.name is None:
        return source
    return replace(source, name=" ".join(printable(source.name).split()) or None)
