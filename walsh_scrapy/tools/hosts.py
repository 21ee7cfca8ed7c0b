"""``walsh hosts``: the hosts that are waiting, and why; the actions `release` and `delay`."""

from __future__ import annotations

import difflib
from contextlib import closing
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.advice import complete_host
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
    columns=("problem", "waits_until", "delay", "operator_delay", "reason", "host"),
    order_by=HOST_ORDER,
    empty="no host is waiting",
    complete=complete_host,
    reads=("*",),
)
#: The condition for hosts in the list: waiting, with a problem, or with a delay by the operator.
IS_LISTED: Final = "problem IS NOT NULL OR waits_for IS NOT NULL OR operator_delay > 0"


def run(call: Call) -> int:
    """List the hosts that wait, end a hold, or set a delay."""
    arguments = call.arguments
    if arguments.action is None:
        with call.state_if_any() as state:
            _LIST.show(state, as_json=arguments.json, where=IS_LISTED)
        return 0
    host = call.options.pace_by.unit(to_url(arguments.host))
    if not host:
        raise WrongCall(f"{arguments.host!r} is not a host name, such as blog.example")
    if arguments.action == "release":
        with call.state_if_any() as state:
            print(release(state, host, arguments.because))
        return 0
    from walsh_scrapy.state import State

    # An operator may set a delay before the first crawl, so this creates the state database.
    with closing(State(call.options.state_url)) as state:
        if warning := describe_unknown_host(host, state, call.options):
            warn(warning)
        reason = arguments.because or ""
        print(set_delay(state, host, arguments.seconds, reason, call.options))
    return 0


def release(state: State | None, host: str, reason: str) -> str:
    """End the hold of a host, record the reason, and return a line for the operator.

    ``host`` is a domain if `WALSH_PACE_BY` is "domain". Raises CommandError if the host is not on
    hold.
    """
    remaining = state.hosts.release(host, reason) if state else 0.0
    if remaining <= 0.0:
        waiting = state.hosts.waiting() if state else {}
        on_hold = [name for name, wait in waiting.items() if wait.hold]
        near = difflib.get_close_matches(host, on_hold, n=1)
        listing = f"`{program_name()} hosts` lists the hosts that are waiting"
        hint = f"did you mean {near[0]}?" if near else listing
        raise CommandError(f"{host} is not on hold; {hint}")
    return printable(f"ended the hold of {host}, {format_seconds(remaining)} early")


def describe_unknown_host(host: str, state: State, options: Options) -> str | None:
    """Return a warning if the host has no source and no recorded request; otherwise None."""
    from walsh_scrapy.feeds.sources.loading import load_sources
    from walsh_scrapy.feeds.sources.source import SourcesError

    if state.hosts.find(host).times != HostTimes():
        return None
    try:
        declared = {options.pace_by.unit(source.url) for source in load_sources(options.sources)}
    except SourcesError:
        declared = set()
    if host in declared:
        return None
    near = difflib.get_close_matches(host, declared, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return printable(f"{host} has no source in {options.sources}, and no request is recorded{hint}")


def set_delay(state: State, host: str, seconds: float, reason: str, options: Options) -> str:
    """Set or remove the operator's delay of a host, and return lines for the operator."""
    delay = format_seconds(state.hosts.set_delay(host, seconds, reason))
    if not seconds:
        return printable(f"removed your delay for {host}")
    undo = f"`{program_name()} hosts delay {host} 0` removes the delay"
    lines = [f"{host}: at most one request every {delay}; {undo}"]
    if seconds > options.max_wait:
        max_wait = format_seconds(options.max_wait)
        lines.append(f"longer than WALSH_MAX_WAIT ({max_wait}): one request in a run, at most")
    if 2.0 * seconds > options.robots_ttl:
        twice = format_seconds(2.0 * seconds)
        lines.append(f"every second request is for robots.txt: a page every {twice}, at most")
    return "\n  ".join(printable(line) for line in lines)


def to_url(text: str) -> str:
    """Return the URL for an argument that is a URL or a host name."""
    return text if "://" in text else f"http://{text}"
