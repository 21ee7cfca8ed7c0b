"""``scrapy status``: is all well? For an operator, and for a monitor.

Checks the last runs, the blocklist, the share of sources that fail, holds, the free disk and the
clock. The first line is the whole, then comes one line per check, the worst first. Sends nothing.
Exit status, as monitoring plugins have it: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (the state or a
setting cannot be read, or a wrong call). Examples: scrapy status. scrapy status --json. scrapy
status --run-hours 3,6 --prometheus walsh.prom
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import WrongCall, add_json, add_sources, typed

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.call import Call
    from walsh_scrapy.tools.status.facts import Facts
    from walsh_scrapy.tools.status.findings import Finding, Limits

WRONG_CALL = 3  # else a monitor takes a wrong call for CRITICAL


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from walsh_scrapy.tools.status.findings import Thresholds

    usual = Thresholds()
    add_sources(parser)
    add_json(parser, "one JSON object")
    parser.add_argument(
        "--quiet", action="store_true", help="print nothing if all is well (for cron)"
    )
    parser.add_argument(
        "--prometheus", metavar="FILE", help="also write metrics to FILE, which ends in .prom"
    )
    for name, default, what in (
        ("--run-hours", usual.run_hours, "hours since the last good run"),
        ("--failing", usual.failing, "percent of the sources that fail"),
    ):
        parser.add_argument(
            name,
            metavar="W,C",
            type=typed(_limits),
            default=default,
            help=f"WARNING and CRITICAL: {what} (default: {default[0]:g},{default[1]:g})",
        )


def _limits(text: str) -> Limits:
    from walsh_scrapy.tools.status.findings import Limits

    try:
        warning, critical = map(float, text.split(","))
        is_ordered = warning <= critical
    except ValueError:
        is_ordered = False
    if not is_ordered:
        raise ValueError(f"{text} is not two numbers with a comma, the second not smaller")
    return Limits(warning, critical)


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
            raise WrongCall(f"--prometheus {given.prometheus}: {error.strerror}") from None
    return int(worst(findings))


def _check(call: Call) -> tuple[Facts | None, list[Finding]]:
    """Return the facts and the findings; no facts, and why, if they cannot be read."""
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.state import StateError
    from walsh_scrapy.tools.status.facts import gather
    from walsh_scrapy.tools.status.findings import Finding, Status, Thresholds, find

    given = call.arguments
    try:
        with call.state_if_any() as state:
            if state is not None:
                facts = gather(state, call.options, given.sources)
                return facts, find(facts, Thresholds(given.run_hours, given.failing))
            why, advice = "there is none yet", "set WALSH_STATE_URL as the runs have it"
    except BadSetting as error:
        return None, [Finding(Status.UNKNOWN, "settings", str(error))]
    except StateError as error:
        why, advice = str(error), ""
    return None, [Finding(Status.UNKNOWN, "state", why, advice)]
