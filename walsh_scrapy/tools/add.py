"""``walsh add URL...``: look for a source at each URL, and declare it in the sources file."""

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

#: Seconds; a request that must wait longer is deferred, and nothing is declared.
_MAX_WAIT_SECONDS: Final = 60


def run(call: Call) -> int:
    """Look for a source at each URL, and declare it; return 1 if one of them has none."""
    declared = SourcesFile(call.sources_file)
    offers = offers_for(call.arguments.urls)
    new = declared.undeclared(offer.url for offer in offers)
    known = [offer.url for offer in offers if offer.url not in new]
    print_lines(f"{url} is already in {call.sources_file}" for url in known)
    offers = tuple(offer for offer in offers if offer.url in new)
    if not offers:
        return 0
    call.crawl(DiscoverSpider, _MAX_WAIT_SECONDS, name="add", offers=offers)
    choices = [choose(offer) for offer in offers]
    found = [source for source, _ in choices if source]
    if found:
        print_lines(declared.add(found))
    for line in (line for _, lines in choices for line in lines):
        warn(printable(line))
    return 0 if len(found) == len(offers) else 1
