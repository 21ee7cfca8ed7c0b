"""``scrapy discover URL...``: what a site offers a crawl, as lines for ``sources.toml``.

Requests from each site, through every gate: robots.txt; the page, as markdown if the server has
that; the feeds that its headers or its HTML head declare (link rel=alternate), at most three; and
only if none is a feed, /llms.txt. Nothing else of the page is read. Prints the sources to declare
as TOML, and all else as comments. Declares nothing. scrapy mayfetch says what each gate answers,
and why. Exit status: 0 something found for every URL, 1 nothing for at least one, 2 cannot say, or
a wrong call. Example: scrapy discover https://docs.example/ >> sources.toml
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import add_json, status_of

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.call import Call

USAGE = "[options] URL [URL ...]"
FAILED = 2  # 1 is an answer
_LONGEST_WAIT = 60


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("urls", nargs="+", metavar="URL", help="such as https://docs.example/")
    add_json(parser)


def run(call: Call) -> int:
    """Run the spider, and print what it found."""
    from walsh_scrapy.tools.discover.offers import as_dict, offers_for, report_lines
    from walsh_scrapy.tools.discover.spider import DiscoverSpider
    from walsh_scrapy.tools.output import json_array, print_lines

    offers = offers_for(call.arguments.urls)
    call.crawl(DiscoverSpider, _LONGEST_WAIT, offers=offers)
    if not sys.stdout.isatty():  # TOML is UTF-8, whatever the locale says
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    as_json = call.arguments.json
    print_lines(json_array(map(as_dict, offers)) if as_json else report_lines(offers))
    return status_of(offer.is_usable for offer in offers)
