"""``walsh add URL...``: find the feed of each URL, and add it to the sources file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.wording import printable
from walsh_scrapy.tools.call import warn
from walsh_scrapy.tools.discover import DiscoverSpider
from walsh_scrapy.tools.offers import choose, offers_for
from walsh_scrapy.tools.show import print_lines
from walsh_scrapy.tools.sourcesfile import SourcesFile

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call

#: A request that must wait longer is deferred, and no source is added.
_MAX_WAIT_SECONDS: Final = 60


def run(call: Call) -> int:
    """Find a source for each URL, and add it to the file; return 1 if a URL has none."""
    file = SourcesFile(call.sources_file)
    offers = offers_for(call.arguments.urls)
    new = file.undeclared(offer.url for offer in offers)
    declared = [offer.url for offer in offers if offer.url not in new]
    print_lines(f"{url} is already in {call.sources_file}" for url in declared)
    offers = tuple(offer for offer in offers if offer.url in new)
    if not offers:
        return 0
    call.crawl(DiscoverSpider, _MAX_WAIT_SECONDS, name="add", offers=offers)
    choices = [choose(offer) for offer in offers]
    sources = [source for source, _ in choices if source]
    if sources:
        print_lines(file.add(sources))
    for line in (line for _, lines in choices for line in lines):
        warn(printable(line))
    return 0 if len(sources) == len(offers) else 1
