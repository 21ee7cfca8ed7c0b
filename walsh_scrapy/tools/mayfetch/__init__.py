"""``walsh mayfetch``: whether a project, or any bot by a robots.txt file, may fetch a URL."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import Unusable, WrongCall, read_file
from walsh_scrapy.tools.mayfetch.answer import Draft, find_url_problem
from walsh_scrapy.tools.show import print_lines, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.tools.call import Call
    from walsh_scrapy.tools.mayfetch.answer import Answer

_MAX_WAIT_SECONDS: Final = 30
#: The columns of the table for several bots.
_COLUMNS: Final = ("bot", "verdict", "group", "line", "rule", "url")


def run(call: Call) -> int:
    """Print the answers."""
    arguments = call.arguments
    now = time.time()
    if arguments.robots is not None:
        answers = _ask_file(call, now)
    elif not call.has_project:
        raise Unusable(
            "there is no Scrapy project here; name a robots.txt with --robots FILE, or pipe one: "
            f"curl -s https://blog.example/robots.txt | {program_name()} mayfetch --robots - URL"
        )
    elif arguments.user_agent:
        raise WrongCall("--user-agent needs --robots FILE, because a project has only one bot")
    else:
        answers = _ask_gates(call)
    if arguments.json:
        print_lines(json.dumps(answer.as_dict()) for answer in answers)
    elif arguments.user_agent and len(arguments.user_agent) > 1:
        show((answer.as_row() for answer in answers), _COLUMNS, as_json=False, empty="")
    else:
        print_lines(line for answer in answers for line in answer.lines(now))
    return 0 if all(answer.allowed for answer in answers) else 1


def _ask_file(call: Call, now: float) -> Sequence[Answer]:
    """Return the answers of a robots.txt file for each URL and bot."""
    arguments = call.arguments
    for url in arguments.urls:
        if problem := find_url_problem(url):
            raise WrongCall(f"{url}: {problem}")
    body = read_file(arguments.robots)
    bots = arguments.user_agent or [call.identity.ua_token if call.has_project else UA_TOKEN]
    drafts = [Draft(body, bot, now) for bot in bots]
    return [draft.answer(url) for url in arguments.urls for draft in drafts]


def _ask_gates(call: Call) -> Sequence[Answer]:
    """Return the answers of the project; without --offline, from probes through its middlewares."""
    from contextlib import closing

    from walsh_scrapy.crawl.context import Context, ProjectDelays
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.mayfetch.probe import Explainer, MayfetchSpider

    arguments = call.arguments
    call.check_gates()
    outcomes: dict[str, BaseException | None] = {}
    urls = [url for url in arguments.urls if not find_url_problem(url)]
    if urls and not arguments.offline:
        call.crawl(MayfetchSpider, _MAX_WAIT_SECONDS, urls=urls, outcomes=outcomes)
    with closing(State(call.options.state_url)) as state:
        delays = ProjectDelays(call.settings, None, call.options.pace_by.unit_of)
        context = Context(call.options, state, project_delays=delays)
        explainer = Explainer(context, outcomes, offline=arguments.offline)
        return [explainer.explain(url) for url in arguments.urls]
