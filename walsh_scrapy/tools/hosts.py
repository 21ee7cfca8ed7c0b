"""``walsh hosts``: the hosts that wait, and why; release and delay (decision 31)."""

from __future__ import annotations

import difflib
from contextlib import closing
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.pacing import HostTimes
from walsh_scrapy.policy.wording import format_seconds, printable
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import CommandError, WrongCall, warn
from walsh_scrapy.tools.show import ViewList

if TYPE_CHECKING:
    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

HOST_ORDER: Final = "rank, coalesce(waits_until, '') DESC, host"
_LIST: Final = ViewList(
    view="readable_hosts",
    columns=("problem", "waits_until", "delay", "operator_delay", "host", "reason"),
    order_by=HOST_ORDER,
    empty="no host waits",
)
#: The condition for a host in the list: it waits, had a problem, or has a delay of yours.
IS_LISTED: Final = "problem IS NOT NULL OR waits_for IS NOT NULL OR operator_delay > 0"


def run(call: Call) -> int:
    """List the hosts that wait, end a hold, or set a delay."""
    given = call.arguments
    if given.action is None:
        with call.state_if_any() as state:
            _LIST.show(state, as_json=given.json, where=IS_LISTED)
        return 0
    host = call.options.pace_by.unit(url_of(given.host))
    if not host:
        raise WrongCall(f"{given.host!r} is not a host; write for example blog.example")
    if given.action == "release":
        with call.state_if_any() as known:
            print(release(known, host, given.because))
        return 0
    from walsh_scrapy.state import State

    # Caution may be added before the first crawl, so this creates a state if there is none.
    with closing(State(call.options.state_url)) as state:
        if unknown := stranger(host, state, call.options):
            warn(unknown)
        print(set_delay(state, host, given.seconds, given.because or ""))
    return 0


def release(state: State | None, host: str, reason: str) -> str:
    """End the hold of a host, record the reason, and return a line about that.

    ``host`` is as it is paced. Raises CommandError if it is not on hold.
    """
    left = state.hosts.release(host, reason) if state else 0.0
    if left <= 0.0:
        waiting = state.hosts.waiting() if state else {}
        held = [name for name, found in waiting.items() if found.hold]
        near = difflib.get_close_matches(host, held, n=1)
        listing = f"`{program_name()} hosts` lists the hosts that wait"
        hint = f"did you mean {near[0]}?" if near else listing
        raise CommandError(f"{host} is not on hold; {hint}")
    return printable(f"{host} may be requested again; {format_seconds(left)} of its hold were left")


def stranger(host: str, state: State, options: Options) -> str:
    """Return a warning for a host that no source has and no crawl requested; else nothing."""
    from walsh_scrapy.sources.loading import load_sources
    from walsh_scrapy.sources.source import SourcesError

    if state.hosts.find(host).times != HostTimes():
        return ""
    try:
        declared = {options.pace_by.unit(each.url) for each in load_sources(options.sources)}
    except SourcesError:
        declared = set()
    if host in declared:
        return ""
    near = difflib.get_close_matches(host, declared, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return printable(
        f"no source of {options.sources} is at {host}, and no crawl requested anything there{hint}"
    )


def set_delay(state: State, host: str, seconds: float, reason: str) -> str:
    """Set or end the operator's delay of a host, and return a line about that."""
    from walsh_scrapy.sources.loading import LONGEST_DELAY

    every = format_seconds(state.hosts.set_delay(host, seconds, reason))
    if not seconds:
        return printable(f"removed your delay for {host}")
    undo = f"`{program_name()} hosts delay {host} 0` ends that"
    line = f"{host}: at most one request every {every}; {undo}"
    if seconds > LONGEST_DELAY.total_seconds():
        line += (
            "; its robots.txt expires after a day, so with a delay of over 12 h each request may "
            "be for robots.txt again"
        )
    return printable(line)


def url_of(text: str) -> str:
    """Return the URL of an operator's argument: a host name, or a URL."""
    return text if "://" in text else f"http://{text}"
