"""``scrapy mayfetch`` and ``walsh mayfetch``: whether URLs may be fetched, and why.

Prints for each URL the answer of every gate of the project, even of its other gates, and why. The
URL itself is not fetched. Blocklist and robots.txt are, with the usual delays, if the state has no
current copy. With --robots the answer is that of the file, for any bot; nothing is sent, and no
project is needed (walsh mayfetch). Exit status: 0 all allowed, 1 at least one denied, 2 cannot say,
or a wrong call. Examples: scrapy mayfetch https://blog.example/feed.xml --json. walsh mayfetch
--robots robots.txt --user-agent GPTBot https://blog.example/private/
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.tools.call import WrongCall, status_of
from walsh_scrapy.tools.files import read_file
from walsh_scrapy.tools.mayfetch.answer import COLUMNS, Draft, wrong_url
from walsh_scrapy.tools.output import print_lines, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from walsh_scrapy.tools.call import Call
    from walsh_scrapy.tools.mayfetch.answer import Answer

USAGE = "[options] URL [URL ...]"
FAILED = 2  # 1 is an answer
_LONGEST_WAIT: Final = 30
_NO_FILE: Final = (
    "which robots.txt? Give it with --robots FILE, or pipe it in: "
    "curl -s https://blog.example/robots.txt | walsh mayfetch --robots - URL"
)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("urls", nargs="+", metavar="URL", help="a URL with its scheme")
    parser.add_argument("--robots", metavar="FILE", help="a robots.txt, '-' for standard input")
    parser.add_argument(
        "--user-agent",
        metavar="NAME",
        action="append",
        help="with --robots: a bot, by its name in robots.txt or its User-Agent; may be repeated",
    )
    parser.add_argument(
        "--offline", action="store_true", help="answer from the state alone, send nothing"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def run(call: Call) -> int:
    """Print the answers."""
    given, now = call.arguments, time.time()
    if given.robots is not None:
        answers = _of_file(call, now)
    elif not call.has_project:
        raise WrongCall(_NO_FILE)
    elif given.user_agent:
        raise WrongCall("--user-agent goes with --robots FILE: a crawl has one name")
    else:
        answers = _of_gates(call)
    if given.json:
        print_lines(json.dumps(each.as_dict()) for each in answers)
    elif given.user_agent and len(given.user_agent) > 1:
        print_lines(table(answers, COLUMNS))
    else:
        print_lines(line for each in answers for line in each.lines(now))
    return status_of(each.allowed for each in answers)


def _of_file(call: Call, now: float) -> Sequence[Answer]:
    """Return the answers of one robots.txt."""
    given = call.arguments
    for url in given.urls:
        if wrong := wrong_url(url):
            raise WrongCall(f"{url}: {wrong}")
    body = read_file(given.robots)
    bots = given.user_agent or [call.options.ua_token if call.has_project else UA_TOKEN]
    drafts = [Draft(body, bot, now) for bot in bots]
    return [draft.answer(url) for url in given.urls for draft in drafts]


def _of_gates(call: Call) -> Sequence[Answer]:
    """Send probes through the middlewares of the project, unless it is offline, and explain."""
    from contextlib import closing

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.delays import ProjectDelays
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.mayfetch.probe import Explainer, MayfetchSpider

    given = call.arguments
    call.check_gates()
    outcomes: dict[str, BaseException | None] = {}
    urls = [url for url in given.urls if not wrong_url(url)]
    if urls and not given.offline:
        call.crawl(MayfetchSpider, _LONGEST_WAIT, urls=urls, outcomes=outcomes)
    with closing(State(call.options.state_url)) as state:
        delays = ProjectDelays(call.settings, None, call.options.pace_by.unit_of)
        context = Context(call.options, state, project_delays=delays)
        explainer = Explainer(context, outcomes, offline=given.offline)
        return [explainer.explain(url) for url in given.urls]
