"""``walsh mayfetch``: what a robots.txt says of URLs to any bots."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from walsh_scrapy.tools.mayfetch.draft import DraftAnswer

_NO_FILE: Final = (
    "which robots.txt? Give it with --robots FILE, or pipe it in: "
    "curl -s https://blog.example/robots.txt | walsh mayfetch --robots - URL"
)


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the program."""
    parser = commands.add_parser(
        "mayfetch",
        help="say what a robots.txt allows to any bots",
        description="Says for each URL and bot whether a robots.txt allows it, and which line "
        "decides. Sends nothing. Exit status: 0 all allowed, 1 at least one denied, 2 wrong call.",
    )
    parser.add_argument("url", nargs="+", metavar="URL", help="a URL of the site, with its scheme")
    parser.add_argument("--robots", metavar="FILE", help="the robots.txt, '-' for standard input")
    parser.add_argument(
        "--user-agent",
        metavar="NAME",
        action="append",
        help=f"a bot, by its name in robots.txt or its User-Agent; may be repeated ({UA_TOKEN})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the answers; return 0 if all are allowed, or else 1. Raises CommandError."""
    from walsh_scrapy.tools.files import read_file
    from walsh_scrapy.tools.mayfetch.draft import draft_table
    from walsh_scrapy.tools.printable import printable

    if options.robots is None:
        raise CommandError(_NO_FILE)
    _check(options.url)
    now = time.time()
    answers = _answers(read_file(options.robots), options, now)
    if options.json:
        lines = [json.dumps(answer.as_dict()) for answer in answers]
    elif options.user_agent is not None and len(options.user_agent) > 1:
        lines = list(draft_table(answers))
    else:
        lines = [line for answer in answers for line in answer.lines(now)]
    print("\n".join(map(printable, lines)))
    return 0 if all(answer.allowed for answer in answers) else 1


def _answers(body: bytes, options: argparse.Namespace, now: float) -> list[DraftAnswer]:
    from walsh_scrapy.tools.mayfetch.draft import Draft

    bots = options.user_agent or [UA_TOKEN]
    try:
        drafts = [Draft(body, bot, now) for bot in bots]
        return [draft.answer(url) for url in options.url for draft in drafts]
    except ValueError as error:
        raise CommandError(str(error)) from error


def _check(urls: list[str]) -> None:
    """Raise CommandError for what is no URL of the web."""
    from walsh_scrapy.tools.mayfetch.robots import NO_URL, is_web, scheme_hint
    from walsh_scrapy.tools.printable import printable

    for url in urls:
        if not is_web(url):
            raise CommandError(printable(f"{url}: {NO_URL}{scheme_hint(url)}"))
