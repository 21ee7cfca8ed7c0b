"""``walsh mayfetch``: whether URLs may be fetched, and why: by a project, or by one robots.txt."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import Unusable, WrongCall
from walsh_scrapy.tools.files import read_file
from walsh_scrapy.tools.mayfetch.answer import Draft, find_url_problem
from walsh_scrapy.tools.show import print_lines, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.tools.call import Call
    from walsh_scrapy.tools.mayfetch.answer import Answer

_MAX_WAIT_SECONDS: Final = 30
#: The columns of a table of several bots.
_COLUMNS: Final = ("bot", "verdict", "group", "line", "rule", "url")


def run(call: Call) -> int:
    """Print the answers."""
    given, now = call.arguments, time.time()
    if given.robots is not None:
        answers = _of_file(call, now)
    elif not call.has_project:
        raise Unusable(
            "there is no Scrapy project here; give a robots.txt with --robots FILE, or pipe it in: "
            f"curl -s https://blog.example/robots.txt | {program_name()} mayfetch --robots - URL"
        )
    elif given.user_agent:
        raise WrongCall("--user-agent goes with --robots FILE: a crawl has one name")
    else:
        answers = _of_gates(call)
    if given.json:
        print_lines(json.dumps(answer.as_dict()) for answer in answers)
    elif given.user_agent and len(given.user_agent) > 1:
        show((answer.as_row() for answer in answers), _COLUMNS, as_json=False, empty="")
    else:
        print_lines(line for each in answers for line in each.lines(now))
    return 0 if all(each.allowed for each in answers) else 1


def _of_file(call: Call, now: float) -> Sequence[Answer]:
    """Return the answers of one robots.txt."""
    given = call.arguments
    for url in given.urls:
        if wrong := find_url_problem(url):
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
    urls = [url for url in given.urls if not find_url_problem(url)]
    if urls and not given.offline:
        call.crawl(MayfetchSpider, _MAX_WAIT_SECONDS, urls=urls, outcomes=outcomes)
    with closing(State(call.options.state_url)) as state:
        delays = ProjectDelays(call.settings, None, call.options.pace_by.unit_of)
        context = Context(call.options, state, project_delays=delays)
        explainer = Explainer(context, outcomes, offline=given.offline)
        return [explainer.explain(url) for url in given.urls]
