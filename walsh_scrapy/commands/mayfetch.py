"""``scrapy mayfetch URL...``: what each gate says of a URL, and why, without fetching it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.tools.exits import clean_exit, usage_error
from walsh_scrapy.tools.urlcommand import UrlCommand

if TYPE_CHECKING:
    import argparse


class Command(UrlCommand):
    """Asks the gates of a crawl about URLs, and prints their answers."""

    longest_wait = 30
    example = "scrapy mayfetch https://blog.example/feed.xml"

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "Say whether URLs may be fetched: what each gate answers, and why"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Prints for each URL what blocklist, robots.txt and pacing say, and why. The URL "
            "itself is not fetched. Blocklist and robots.txt are fetched, with the usual pauses, "
            "if the state has no current copy. Exit status: 0 all allowed, 1 at least one denied, "
            "2 cannot say, or a wrong call. "
            "Example: scrapy mayfetch https://blog.example/feed.xml --json. To try a file before "
            "it is deployed: scrapy mayfetch --robots robots.txt https://blog.example/private/"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        super().add_options(parser)
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object for each URL, a line each"
        )
        parser.add_argument(
            "--offline", action="store_true", help="answer from the state alone, send nothing"
        )
        parser.add_argument(
            "--robots",
            metavar="FILE",
            help="use this robots.txt for every host ('-' for standard input)",
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Send the URLs through the gates, then answer from the state."""
        from walsh_scrapy.tools.mayfetch.explainer import Explainer
        from walsh_scrapy.tools.mayfetch.robots import is_web
        from walsh_scrapy.tools.mayfetch.spider import MayfetchSpider
        from walsh_scrapy.tools.printable import printable

        self.check_usage(args)
        robots = None if opts.robots is None else _read(opts.robots)
        asked = robots is None and not opts.offline
        with clean_exit():
            context = self.open_crawl()
            if asked:
                self.run_spider(MayfetchSpider, urls=[url for url in args if is_web(url)])
            explainer = Explainer(context, robots, asked=asked)
            answers = [explainer.explain(url) for url in args]
            now = context.clock.now()
            for answer in answers:
                lines = [json.dumps(answer.as_dict())] if opts.json else answer.lines(now)
                print("\n".join(map(printable, lines)))
        self.set_exit_status(answer.allowed for answer in answers)


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        usage_error(f"--robots {name}: {error.strerror}")
