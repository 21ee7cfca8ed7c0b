"""``scrapy discover URL...``: what a site offers a crawl, as lines for ``sources.toml``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from walsh_scrapy.tools.command import UrlCommand, announce_requests, status_of
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from walsh_scrapy.tools.discover.candidates import SiteOffer


class Command(UrlCommand):
    """Sends the requests of a crawl through the same gates; the sources file is not changed."""

    longest_wait = 60
    example = "scrapy discover https://docs.example/"
    headline = "Find what a site offers a crawl, as lines for sources.toml"
    description = (
        "Requests from each site, through every gate: robots.txt; the page, as markdown if the "
        "server has that; the feeds that its headers or its HTML head declare "
        "(link rel=alternate), at most three; and only if none is a feed, /llms.txt. "
        "Nothing else of the page is read. Prints the sources to declare as TOML, and all else "
        "as comments. Declares nothing. scrapy mayfetch says what each gate answers, and why. "
        "Exit status: 0 something found for every URL, 1 "
        "nothing for at least one, 2 cannot say, or a wrong call. "
        "Example: scrapy discover https://docs.example/ >> sources.toml"
    )
    json = "one JSON array"

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:
        """Run the spider, and print what it found."""
        from walsh_scrapy.sources.source import SourcesError
        from walsh_scrapy.tools.discover.candidates import offers_for
        from walsh_scrapy.tools.discover.spider import DiscoverSpider

        self.check_urls(args)
        try:
            offers = offers_for(args)
        except SourcesError as error:
            self.refuse(str(error))
        self.open_crawl()
        announce_requests()
        self.run_spider(DiscoverSpider, offers=offers)
        if not sys.stdout.isatty():  # TOML is UTF-8, whatever the locale says
            sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        print_lines(_lines(offers, as_json=opts.json))
        return status_of(offer.is_usable for offer in offers)


def _lines(offers: Sequence[SiteOffer], *, as_json: bool) -> Iterable[str]:
    from walsh_scrapy.tools.discover.report import as_dict, report_lines
    from walsh_scrapy.tools.output import json_array

    return json_array(map(as_dict, offers)) if as_json else report_lines(offers)
