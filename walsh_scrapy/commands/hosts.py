"""``scrapy hosts``: which hosts wait, until when and why; release and pause."""

from __future__ import annotations

import math
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING, ClassVar

from walsh_scrapy.tools.command import OperatorCommand
from walsh_scrapy.tools.exits import usage_error
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


_RELEASE = 'Example: scrapy hosts release blog.example --because "mail of 3 May: go on"'
_PAUSE = "Example: scrapy hosts pause blog.example 2h"


class Command(OperatorCommand):
    """Lists hosts that wait, ends holds and sets delays."""

    usage = "[options] [release HOST --because TEXT | pause HOST DURATION]"
    headline = "List the hosts that wait: until when and why; release or pause one"
    description = (
        "Lists every host that may not be requested now, was unreachable or answered 500, 502 "
        "or 504 when it was requested last, or has a delay of yours. `release HOST --because "
        "TEXT` ends the hold of a host, and records when and why. `pause HOST DURATION` "
        "(seconds, or 90min, 2h, PT2H) gives a host a delay of at least that between two "
        "requests, in all runs; `pause HOST 0` ends it. "
        "Exit status: 0, 1 if something cannot be done, 2 for a wrong call. "
        'Examples: scrapy hosts --json. scrapy hosts release blog.example --because "they '
        'wrote: go on". scrapy hosts pause blog.example 2h'
    )
    takes_words = True
    json = "one JSON array"
    arguments: ClassVar = {
        "--because": {
            "metavar": "TEXT",
            "help": "why, one line: recorded with the override (release needs it)",
        },
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:
        """List, release or pause."""
        reason = _reason(opts.because)
        seconds = _check(args, reason)
        if args:
            print(self._change(args, seconds, reason))
        else:
            self._list(as_json=opts.json)
        return 0

    def _list(self, *, as_json: bool) -> None:
        from walsh_scrapy.tools.hosts import build_overview, hosts_text, totals
        from walsh_scrapy.tools.output import json_array

        with self.state_if_any() as state:
            rows = build_overview(state)
        if as_json:
            print_lines(json_array(row.as_dict() for row in rows))
            return
        if rows:
            print_lines(hosts_text(rows))
        print(totals(rows))

    def _change(self, args: Sequence[str], seconds: float, reason: str) -> str:
        from walsh_scrapy.state import State
        from walsh_scrapy.tools.hosts import release, set_delay, stranger, url_of

        action, given = args[0], url_of(args[1])
        host = self.options.pace_by.unit(given)
        if not host:
            usage_error(f"{args[1]} is not a host. {_PAUSE}")
        if action == "release":
            with self.state_if_any() as known:
                return release(known, host, reason)
        # Caution may be added before the first crawl, so this creates a state if there is none.
        with closing(State(self.options.state_url)) as state:
            if unknown := stranger(host, state, self.options):
                print(f"walsh-scrapy: {unknown}", file=sys.stderr)
            return set_delay(state, host, seconds, reason)


def _reason(given: str | None) -> str:
    reason = (given or "").strip()
    if any(ord(character) < 32 for character in reason):
        usage_error("--because takes one line of text")
    return reason


def _check(args: Sequence[str], reason: str) -> float:
    """Exit with status 2 for a wrong call; return the seconds of ``pause``, or 0."""
    if args and args[0] not in ("release", "pause"):
        usage_error(f"`hosts` takes `release HOST`, `pause HOST DURATION` or nothing. {_PAUSE}")
    if args and args[0] == "release" and (len(args) != 2 or not reason):
        usage_error(f"`release` takes one host, and --because TEXT. {_RELEASE}")
    if not args or args[0] == "release":
        if reason and not args:
            usage_error(f"--because belongs to `release` and `pause`. {_RELEASE}")
        return 0.0
    seconds = _seconds(args[2]) if len(args) == 3 else math.nan
    if not 0.0 <= seconds < math.inf:
        usage_error(f"`pause` takes one host, and seconds or a duration. {_PAUSE}")
    return seconds


def _seconds(text: str) -> float:
    """Return the seconds of a number or of a duration; NaN if the text is neither."""
    from walsh_scrapy.policy.durations import parse_typed_duration

    for read in (float, lambda typed: parse_typed_duration(typed).total_seconds()):
        with suppress(ValueError):
            return read(text.strip())
    return math.nan
