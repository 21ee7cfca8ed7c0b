"""What ``walsh judge`` prints: a table by User-Agent, and where each rule was broken first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from walsh_scrapy.policy.wording import and_more, count_of, format_seconds, printable
from walsh_scrapy.testing.judgelog.jsonlines import NEEDED
from walsh_scrapy.testing.judgelog.layouts import LONGEST_REQUEST
from walsh_scrapy.tools.output import columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.testing.judgelog.agent import Agent, LogLine
    from walsh_scrapy.testing.judgelog.judge import Judge

#: User-Agents that the table lists, those with the most requests.
MOST_ROWS: Final = 20
_HEADINGS: Final = (
    "requests", "robots.txt", "denied", "pause", "asked", "short", "refused", "hasty", "304",
    "User-Agent",
)  # fmt: skip


class _Breach(NamedTuple):
    number: int
    words: str
    first: LogLine | None


def report(judge: Judge, *, every: bool) -> Iterator[str]:
    """Yield the lines of the report; of ``every`` User-Agent, or of the first `MOST_ROWS`."""
    agents = list(judge.agents())
    shown = agents if every else agents[:MOST_ROWS]
    if shown:
        yield from columns([_HEADINGS, *(_cells(name, agent) for name, agent in shown)])
    if left := len(agents) - len(shown):
        yield and_more(left)
    for name, agent in shown:
        for breach in _breaches(agent):
            if breach.number and breach.first:
                place = f"{breach.first.file}:{breach.first.line}"
                target = breach.first.target.decode("utf-8", "replace")
                said = f"{count_of(breach.number, 'request')} {breach.words}"
                yield printable(f"{name}: {said}; the first is {place} {target}")
    if judge.vague:
        yield (
            f"{count_of(judge.vague, 'line')} with the end of a request and no duration "
            f"($request_time): only what no request of {LONGEST_REQUEST} s explains counts as short"
        )
    yield totals(judge)


def totals(judge: Judge) -> str:
    """Return one line: what was read, and what was not."""
    lacking = f" (JSON without {_missing(judge)})" if judge.missing else ""
    return (
        f"{count_of(judge.read, 'line')} read; {count_of(judge.unread, 'line')} in another format"
        f"{lacking}; {count_of(judge.others, 'request')} of browsers and the like not judged"
    )


def unreadable(judge: Judge) -> str:
    """Return why no line could be read, and what to do."""
    if judge.missing:
        return f"the lines of JSON lack what bots are judged by: {_missing(judge)}"
    if judge.may_be_json:
        return "no line is in Common or Combined Log Format, or JSON; say its --format"
    return "no line is written as the --format says"


def _missing(judge: Judge) -> str:
    return ", ".join(said for kind, said in NEEDED.items() if kind in judge.missing)


def records(judge: Judge) -> Iterator[dict[str, Any]]:
    """Yield an object for each User-Agent, for ``--json``; pauses are in seconds."""
    for name, agent in judge.agents():
        yield {
            "user_agent": name,
            "polite": agent.is_polite,
            "requests": agent.requests,
            "robots_fetched": agent.robots,
            "without_robots_in_a_day": agent.stale,
            "denied": agent.denied,
            "shortest_pause": _rounded(agent.pause),
            "pause_asked": agent.terms.pause,
            "short_pauses": agent.short,
            "outside_visit_time": agent.closed,
            "refused": agent.refused,
            "shortest_pause_after_refusal": _rounded(agent.after_refusal),
            "hasty_retries": agent.hasty,
            "conditional": agent.conditional,
            "first": {
                kind: _place(breach.first)
                for kind, breach in zip(_KINDS, _breaches(agent), strict=True)
            },
        }


_KINDS: Final = ("denied", "short_pauses", "hasty_retries", "outside_visit_time")


def _breaches(agent: Agent) -> Sequence[_Breach]:
    why = f": {agent.terms.why(agent.denied_at.target)}" if agent.denied_at else ""
    asked = format_seconds(agent.terms.pause)
    return (
        _Breach(agent.denied, f"for what robots.txt denies{why}", agent.denied_at),
        _Breach(agent.short, f"earlier than the pause asked for ({asked})", agent.short_at),
        _Breach(agent.hasty, "within a second after 429 or 503", agent.hasty_at),
        _Breach(agent.closed, "outside the Visit-time", agent.closed_at),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _place(place: LogLine | None) -> dict[str, Any] | None:
    if place is None:
        return None
    target = place.target.decode("utf-8", "replace")
    return {"file": place.file, "line": place.line, "target": target}


def _cells(name: str, agent: Agent) -> tuple[str, ...]:
    return (
        str(agent.requests),
        str(agent.robots),
        str(agent.denied),
        "-" if agent.pause is None else format_seconds(agent.pause),
        format_seconds(agent.terms.pause) if agent.terms.pause else "-",
        str(agent.short),
        str(agent.refused),
        str(agent.hasty),
        "-" if agent.conditional is None else f"{agent.conditional:.0%}",
        printable(name),
    )
