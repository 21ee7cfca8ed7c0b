"""``walsh status``: is all well? For an operator, and for a monitor."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import Unusable

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call
    from walsh_scrapy.tools.status.facts import Facts
    from walsh_scrapy.tools.status.findings import Finding


def run(call: Call) -> int:
    """Check, print and write."""
    from walsh_scrapy.tools.output import print_lines
    from walsh_scrapy.tools.status.findings import status_json, status_lines, worst, write_metrics

    given = call.arguments
    if given.quiet:  # the sources file may have warnings
        logging.getLogger("walsh_scrapy").setLevel(logging.ERROR)
    facts, findings = _check(call)
    now = facts.now if facts else time.time()
    if worst(findings) or not given.quiet:
        print_lines([status_json(findings, now)] if given.json else status_lines(findings))
    sys.stdout.flush()
    if given.prometheus:
        try:
            write_metrics(given.prometheus, findings, facts, now)
        except OSError as error:
            raise Unusable(f"--prometheus {given.prometheus}: {error.strerror}") from None
    return worst(findings).exit_status


def _check(call: Call) -> tuple[Facts | None, list[Finding]]:
    """Return the facts and the findings; no facts, and why, if they cannot be read."""
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.state import StateError
    from walsh_scrapy.tools.status.facts import gather
    from walsh_scrapy.tools.status.findings import Finding, Limits, Status, Thresholds, find

    given = call.arguments
    try:
        with call.state_if_any() as state:
            if state is not None:
                facts = gather(state, call.options, given.sources)
                limits = Thresholds(Limits(*given.run_hours), Limits(*given.failing))
                return facts, find(facts, limits)
            why, advice = "there is none yet", "set WALSH_STATE_URL as the runs have it"
    except BadSetting as error:
        return None, [Finding(Status.UNKNOWN, "settings", str(error))]
    except StateError as error:
        why, advice = str(error), ""
    return None, [Finding(Status.UNKNOWN, "state", why, advice)]
