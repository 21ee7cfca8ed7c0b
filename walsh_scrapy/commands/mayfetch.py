"""``scrapy mayfetch URL...``: what each gate says of a URL, and why, without fetching it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from walsh_scrapy.tools.command import UrlCommand, status_of
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse


class Command(UrlCommand):
    """Asks the gates of a crawl about URLs, and prints their answers."""

    longest_wait = 30
    example = "scrapy mayfetch https://blog.example/feed.xml"
    headline = "Say whether URLs may be fetched: what each gate answers, and why"
    description = (
        "Prints for each URL what blocklist, robots.txt and pacing say, and why. The URL "
        "itself is not fetched. Blocklist and robots.txt are fetched, with the usual pauses, "
        "if the state has no current copy. Exit status: 0 all allowed, 1 at least one denied, "
        "2 cannot say, or a wrong call. "
        "Example: scrapy mayfetch https://blog.example/feed.xml --json. To try a file before "
        "it is deployed: scrapy mayfetch --robots robots.txt https://blog.example/private/"
    )
    json = "one JSON object for each URL, a line each"
    arguments: ClassVar = {
        "--offline": {"action": "store_true", "help": "answer from the state alone, send nothing"},
        "--robots": {
            "metavar": "FILE",
            "help": "use this robots.txt for every host ('-' for standard input)",
        },
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:
        """Send the URLs through the gates, then answer from the state."""
        from walsh_scrapy.tools.files import read_file
        from walsh_scrapy.tools.mayfetch.answer import is_web
        from walsh_scrapy.tools.mayfetch.explainer import Explainer, MayfetchSpider

        self.check_urls(args)
        try:
            robots = None if opts.robots is None else read_file(opts.robots)
        except CommandError as error:
            self.refuse(f"--robots {error}")
        asked = robots is None and not opts.offline
        context = self.open_crawl()
        if asked:
            self.run_spider(MayfetchSpider, urls=[url for url in args if is_web(url)])
        explainer = Explainer(context, robots, asked=asked)
        answers = [explainer.explain(url) for url in args]
        now = context.clock.now()
        for answer in answers:
            lines = [json.dumps(answer.as_dict())] if opts.json else answer.lines(now)
            print_lines(lines)
        return status_of(answer.allowed for answer in answers)
