"""``scrapy hosts release`` and ``pause``: what they change, and what they print (decision 31)."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from walsh_scrapy.state import State


def release(state: State | None, host: str, reason: str) -> str:
    """Lift the hold of a host, record why, and return the line that says so.

    ``host`` is the name under which the ledger keeps the hold. Raises CommandError if there is
    none.
    """
    shown = host.rstrip(".")
    left = state.ledger.lift(host, reason) if state else 0.0
    if left <= 0.0:
        waiting = state.ledger.waiting() if state else {}
        held = [name for name, found in waiting.items() if found.hold]
        near = difflib.get_close_matches(host, held, n=1)
        hint = (
            f"did you mean {near[0].rstrip('.')}?"
            if near
            else "`scrapy hosts` lists the hosts that rest"
        )
        raise CommandError(printable(f"{shown} is not on hold; {hint}"))
    return printable(f"{shown} may be asked again; {format_seconds(left)} of its hold were left")


def pause(state: State, host: str, seconds: float, reason: str) -> str:
    """Set or end the pause of a host, record the act, and return the line that says so."""
    times = state.ledger.pause(host, seconds, reason).times
    every = format_seconds(times.room())
    if not seconds:
        return printable(f"{host} has no pause of yours")
    return printable(
        f"{host} gets one request every {every} at most, until `scrapy hosts pause {host} 0`"
    )
