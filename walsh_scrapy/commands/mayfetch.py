"""``scrapy mayfetch URL...``: what every gate says of a URL, and why, without fetching it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.tools.endings import one_line, wrong_call
from walsh_scrapy.tools.urlcommand import Question

if TYPE_CHECKING:
    import argparse


class Command(Question):
    """Answers as a crawl would decide: through the same gates, taking the same slots."""

    longest_wait = 30
    example = "scrapy mayfetch https://blog.example/feed.xml"

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "Say whether URLs may be fetched: each gate's answer and why"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Prints for each URL what blocklist, robots.txt and pacing say, and why; the URL "
            "itself is not fetched. Blocklist and robots.txt are, if they are not at hand, and "
            "take their hosts' slots. Exit status: 0 all allowed, 1 one denied, 2 cannot say. "
            "Example: scrapy mayfetch https://blog.example/feed.xml --json. To try a file before "
            "it is deployed: scrapy mayfetch --robots robots.txt https://blog.example/private/"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print a JSON object a line")
        parser.add_argument(
            "--offline", action="store_true", help="answer from the state alone, ask nobody"
        )
        parser.add_argument(
            "--robots", metavar="FILE", help="try this robots.txt instead ('-' for standard input)"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Ask the gates, then answer from what the state has learned."""
        from walsh_scrapy.tools.mayfetch.report import Explainer, is_web
        from walsh_scrapy.tools.mayfetch.spider import AskingSpider

        self.check_call(args)
        robots = None if opts.robots is None else _read(opts.robots)
        asked = robots is None and not opts.offline
        with one_line():
            context = self.opened()
            if asked:
                self.ask(AskingSpider, urls=[url for url in args if is_web(url)])
            explainer = Explainer(context, robots, asked=asked)
            answers = [explainer.explain(url) for url in args]
            now = context.clock.now()
            for answer in answers:
                text = json.dumps(answer.as_dict()) if opts.json else "\n".join(answer.lines(now))
                print(text)
        self.conclude(answer.allowed for answer in answers)


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        wrong_call(f"--robots {name}: {error.strerror}")
