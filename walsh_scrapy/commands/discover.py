"""``scrapy discover URL...``: what a site offers a crawl, as a line for ``sources.toml``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from walsh_scrapy.tools.endings import one_line, wrong_call
from walsh_scrapy.tools.urlcommand import Question

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from walsh_scrapy.runtime.context import Context
    from walsh_scrapy.tools.discover.candidates import Finding


class Command(Question):
    """Asks as a crawl would, through the same gates, and declares nothing."""

    longest_wait = 60
    example = "scrapy discover https://docs.example/"

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "Say what a site offers a crawl, as a line for sources.toml"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Asks each site, through every gate and at its own pace, for robots.txt, the page as "
            "markdown (and as a feed if it answers 406), what its headers announce as its markdown "
            "(three at most, until one is) and /llms.txt. A feed is known as one, and ends the "
            "search. HTML is not read. Prints the source to declare as TOML, and all else as "
            "comments. Nothing is declared or kept of the site. Exit status: 0 something found for "
            "every URL, 1 nothing for one, 2 cannot say. "
            "Example: scrapy discover https://docs.example/ >> sources.toml"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON array")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Check the call, ask, and print what was found."""
        from walsh_scrapy.sources import SourcesError
        from walsh_scrapy.tools.discover.candidates import findings_for
        from walsh_scrapy.tools.discover.spider import DiscoverySpider

        self.check_call(args)
        with one_line():
            try:
                findings = findings_for(args)
            except SourcesError as error:
                wrong_call(str(error))
            context = self.opened()
            if sys.stderr.isatty():
                print("asking, each host at its own pace ...", file=sys.stderr)
            self.ask(DiscoverySpider, findings=findings)
            _print(_lines(findings, context, as_json=opts.json))
        self.conclude(finding.is_usable for finding in findings)


def _lines(findings: Sequence[Finding], context: Context, *, as_json: bool) -> Iterable[str]:
    from walsh_scrapy.tools.discover.report import all_lines, as_dict
    from walsh_scrapy.tools.mayfetch.report import Explainer
    from walsh_scrapy.tools.printable import json_array

    explainer = Explainer(context, asked=True)
    if as_json:
        return json_array(as_dict(finding, explainer) for finding in findings)
    return all_lines(findings, explainer, context.clock.now())


def _print(lines: Iterable[str]) -> None:
    if not sys.stdout.isatty():  # TOML is UTF-8, wherever it goes
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    for line in lines:
        print(line)
