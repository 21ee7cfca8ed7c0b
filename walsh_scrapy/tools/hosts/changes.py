"""``scrapy hosts release`` and ``pause``: what they change, and what they print (decision 31)."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from walsh_scrapy.policy.pacedhosts import host_name
from walsh_scrapy.policy.pacing import HostTimes
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.sources import SourcesError, load_sources
from walsh_scrapy.sources.loading import LONGEST_PAUSE
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.hosts.names import paced_name
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State


def release(state: State | None, host: str, reason: str) -> str:
    """Lift the hold of a host, record why, and return the line that says so.

    ``host`` is the name under which the ledger keeps the hold. Raises CommandError if there is
    none.
    """
    shown = host_name(host)
    left = state.ledger.lift(host, reason) if state else 0.0
    if left <= 0.0:
        waiting = state.ledger.waiting() if state else {}
        held = [name for name, found in waiting.items() if found.hold]
        near = difflib.get_close_matches(host, held, n=1)
        hint = (
            f"did you mean {host_name(near[0])}?"
            if near
            else "`scrapy hosts` lists the hosts that rest"
        )
        raise CommandError(printable(f"{shown} is not on hold; {hint}"))
    return printable(f"{shown} may be asked again; {format_seconds(left)} of its hold were left")


def stranger(host: str, state: State, options: Options) -> str:
    """Return a warning for a host that no source has and that no crawl asked; else nothing."""
    if state.ledger.find(host).times != HostTimes():
        return ""
    try:
        declared = {paced_name(each.url, options.pace_by) for each in load_sources(options.sources)}
    except SourcesError:
        declared = set()
    if host in declared:
        return ""
    near = difflib.get_close_matches(host, declared, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return printable(
        f"no source of {options.sources} is at {host}, and no crawl asked it for anything{hint}"
    )


def pause(state: State, host: str, seconds: float, reason: str) -> str:
    """Set or end the pause of a host, record the act, and return the line that says so."""
    times = state.ledger.pause(host, seconds, reason).times
    every = format_seconds(times.room())
    if not seconds:
        return printable(f"{host} has no pause of yours")
    rare = ""
    if seconds > LONGEST_PAUSE.total_seconds():
        rare = "; over 12 h it may be asked for its robots.txt alone, which is obeyed for a day"
    return printable(
        f"{host} gets one request every {every} at most, until `scrapy hosts pause {host} 0`{rare}"
    )
