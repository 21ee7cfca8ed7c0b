"""What ``walsh judge`` prints: a table by bot, and where each rule was broken first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.wording import and_more, count_of, format_seconds, printable
from walsh_scrapy.testing.judgelog.agent import (
    ACCUSATIONS,
    CLOSED,
    DENIED,
    DIFFERS,
    FAST,
    HASTY_RETRY,
    SHORT,
    STUBBORN,
)
from walsh_scrapy.testing.judgelog.jsonlines import NEEDED
from walsh_scrapy.testing.judgelog.lines import LONGEST_REQUEST
from walsh_scrapy.testing.tallies import HASTY, MOST_A_SECOND, MOST_RETRIES, PERIOD, SOON
from walsh_scrapy.tools.output import columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.testing.judgelog.agent import Agent
    from walsh_scrapy.testing.judgelog.judge import Judge

#: Bots that the table lists, those with the most requests.
MOST_ROWS: Final = 20
#: Addresses of a bot that are shown.
_SHOWN_ADDRESSES: Final = 3
#: Repeated requests with fewer 304 than this share are worth a line, from so many on.
LEAST_304: Final = 0.1
LEAST_REPEATED: Final = 20
_HEADINGS: Final = (
    "requests", "addresses", "robots.txt", "denied", "pause", "asked", "short", "fast", "refused",
    "hasty", "stubborn", "304", "User-Agent",
)  # fmt: skip
_WORDS: Final = {
    SHORT: "{requests} earlier than the pause asked for ({asked})",
    FAST: f"{{requests}} beyond {MOST_A_SECOND} a second for {PERIOD} s",
    HASTY_RETRY: f"{{requests}} for the same URL within {HASTY} s after 429 or 503",
    STUBBORN: (
        f"{{requests}} after {MOST_RETRIES} in a row that came within {SOON} s after 429 or 503"
    ),
    CLOSED: "{requests} outside the Visit-time",
    DENIED: "{requests} for what robots.txt denies: {why}",
    DIFFERS: "two readers of robots.txt differ on {requests}: not accused ({why})",
}


def report(judge: Judge, *, every: bool) -> Iterator[str]:
    """Yield the lines of the report; of ``every`` bot, or of the first `MOST_ROWS`."""
    agents = list(judge.agents())
    shown = agents if every else agents[:MOST_ROWS]
    if shown:
        yield from columns([_HEADINGS, *map(_cells, shown)])
    if left := len(agents) - len(shown):
        yield and_more(left)
    for agent in shown:
        yield from (printable(f"{_name(agent)}: {said}") for said in _said(agent))
    for agent in agents[len(shown) :]:
        if not agent.is_polite:
            yield from (printable(f"{_name(agent)}: {said}") for said in _said(agent))
    if judge.robots.is_too_much:
        yield "Protego would take too long to read this robots.txt, so nobody is judged by it"
    if judge.vague:
        yield (
            f"{count_of(judge.vague, 'line')} may have the end of a request, without its duration "
            f"($request_time, %D): only what no request of {LONGEST_REQUEST} s explains counts"
        )
    yield totals(judge)


def _said(agent: Agent) -> Iterator[str]:
    asked = format_seconds(agent.terms.pause)
    for kind, words in _WORDS.items():
        if kind in agent.found:
            number, first = agent.found[kind]
            requests = count_of(number, "request")
            said = words.format(requests=requests, asked=asked, why=agent.why(kind))
            target = first.target.decode("utf-8", "replace")
            yield f"{said}; the first is {first.file}:{first.line} {target}"
    if agent.again >= LEAST_REPEATED and agent.unchanged < LEAST_304 * agent.again:
        yield (
            f"few 304: {agent.unchanged} of {agent.again} repeated requests for what this host "
            "answers 304 as well"
        )
    if not agent.address and len(agent.addresses) > 1:
        named = ", ".join(_first_addresses(agent))
        more = ", …" if len(agent.addresses) > _SHOWN_ADDRESSES else ""
        yield f"from {_count_of_addresses(agent)} addresses: {named}{more}"


def _first_addresses(agent: Agent) -> list[str]:
    return [each.decode("utf-8", "replace") for each in [*agent.addresses][:_SHOWN_ADDRESSES]]


def _count_of_addresses(agent: Agent) -> str:
    return f"{len(agent.addresses)}{'+' if agent.more_addresses else ''}"


def _name(agent: Agent) -> str:
    return f"{agent.name} at {agent.address}" if agent.address else agent.name


def totals(judge: Judge) -> str:
    """Return one line: what was read, and what was not."""
    lacking = f" (JSON without {_missing(judge)})" if judge.missing else ""
    apart = "".join(
        f"; {count_of(number, 'request')} of {whose} not judged"
        for whose, number in sorted(judge.apart.items())
    )
    return (
        f"{count_of(judge.read, 'line')} read; "
        f"{count_of(judge.unread, 'line')} in another format{lacking}{apart}"
    )


def unreadable(judge: Judge) -> str:
    """Return why no line could be read, and what to do."""
    if judge.missing:
        return (
            f"the lines of JSON lack what bots are judged by: {_missing(judge)}; if nginx wrote "
            "them with other keys, say its log_format with --format"
        )
    if judge.may_be_json:
        return (
            "no line is in Common or Combined Log Format, or JSON; say with --format how the "
            "server writes them"
        )
    return "no line is written as the --format says"


def _missing(judge: Judge) -> str:
    return ", ".join(said for kind, said in NEEDED.items() if kind in judge.missing)


def records(judge: Judge) -> Iterator[dict[str, Any]]:
    """Yield an object for each bot, for ``--json``; pauses are in seconds."""
    for agent in judge.agents():
        yield {
            "user_agent": agent.name,
            "address": agent.address or None,
            "addresses": len(agent.addresses),
            "first_addresses": _first_addresses(agent),
            "polite": agent.is_polite,
            "requests": agent.requests,
            "robots_fetched": agent.robots,
            "without_robots_in_a_day": agent.stale,
            "shortest_pause": _rounded(agent.pause),
            "pause_asked": agent.terms.pause,
            "refused": agent.refused,
            "shortest_pause_after_refusal": _rounded(agent.after_refusal),
            "conditional": agent.conditional,
            "repeated": agent.again,
            "repeated_unchanged": agent.unchanged,
            **{kind: agent.count(kind) for kind in (*ACCUSATIONS, DIFFERS)},
            "first": {kind: _place(agent, kind) for kind in (*ACCUSATIONS, DIFFERS)},
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _place(agent: Agent, kind: str) -> dict[str, Any] | None:
    if kind not in agent.found:
        return None
    place = agent.found[kind].first
    target = place.target.decode("utf-8", "replace")
    return {"file": place.file, "line": place.line, "target": target}


def _cells(agent: Agent) -> tuple[str, ...]:
    return (
        str(agent.requests),
        _count_of_addresses(agent),
        str(agent.robots),
        str(agent.count(DENIED)),
        "-" if agent.pause is None else format_seconds(agent.pause),
        format_seconds(agent.terms.pause) if agent.terms.pause else "-",
        str(agent.count(SHORT)),
        str(agent.count(FAST)),
        str(agent.refused),
        str(agent.count(HASTY_RETRY)),
        str(agent.count(STUBBORN)),
        "-" if agent.conditional is None else f"{agent.conditional:.0%}",
        printable(_name(agent)),
    )
