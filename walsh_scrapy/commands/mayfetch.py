"""``scrapy mayfetch URL...``: what every gate says of a URL, and why, without fetching it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError
from scrapy.settings import Settings

if TYPE_CHECKING:
    import argparse

#: A question is not worth a long wait (seconds): what must rest longer is answered with "when".
LONGEST_WAIT = 30


class Command(ScrapyCommand):
    """Answers as a crawl would decide: through the same gates, taking the same slots."""

    requires_project = True

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return "[options] URL [URL ...]"

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

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Keep the log to what is worth a line beside the answers."""
        super().process_options(args, opts)
        if self.settings is not None:
            self.settings.set("WALSH_MAX_WAIT", LONGEST_WAIT, priority="command")
            if opts.loglevel is None:
                self.settings.set("LOG_LEVEL", "WARNING", priority="cmdline")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Ask the gates, then answer from what the state has learned."""
        from walsh_scrapy.crawl import Crawl
        from walsh_scrapy.options import BadSetting, Options
        from walsh_scrapy.report.mayfetch import Explainer
        from walsh_scrapy.spider import check_gates
        from walsh_scrapy.state import State, StateError

        if not args:
            raise UsageError("which URL? Example: scrapy mayfetch https://blog.example/feed.xml")
        robots = None if opts.robots is None else _read(opts.robots)
        settings = self.settings or Settings()
        try:
            check_gates(settings)
            options = Options.from_settings(settings)
            crawl = Crawl(options, State(options.state_url))
        except (BadSetting, StateError) as error:
            raise UsageError(str(error)) from None
        asked = robots is None and not opts.offline
        if asked:
            self._ask(args)
        explainer = Explainer(crawl, robots, asked=asked)
        answers = [explainer.explain(url) for url in args]
        now = crawl.now()
        for answer in answers:
            text = json.dumps(answer.as_dict()) if opts.json else "\n".join(answer.lines(now))
            print(text)
        verdicts = {answer.allowed for answer in answers}
        self.exitcode = 1 if False in verdicts else 2 if None in verdicts else 0

    def _ask(self, urls: list[str]) -> None:
        from walsh_scrapy.asking import AskingSpider
        from walsh_scrapy.report.mayfetch import is_web

        if self.crawler_process is not None:
            self.crawler_process.crawl(AskingSpider, urls=[url for url in urls if is_web(url)])
            self.crawler_process.start()


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"--robots {name}: {error.strerror}") from None
