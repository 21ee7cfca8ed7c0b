"""An account in words and as JSON.

The letter is plain text, as wide as mail, and the same wherever it is printed. The JSON object has
every fact of it, and the hashes of the documents.
"""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.audit.clocks import CLOCK_SET
from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.urls import robots_url
from walsh_scrapy.policy.wording import for_others, format_seconds, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.policy.audit.pace import CheckedRequest, RequestGap
    from walsh_scrapy.policy.audit.record import LoggedDenial, LoggedRequest
    from walsh_scrapy.state.hosts import Override
    from walsh_scrapy.tools.why.account import Account, Outlook, RobotsOfDay

#: Columns. A URL or a line of robots.txt may be longer, because neither is cut.
WIDTH: Final = 78
_INDENT: Final = " " * 10
#: Columns of requests and denials that JSON has as they are.
_COLUMNS: Final = frozenset({
    "url", "purpose", "gate", "status", "duration", "hold", "gates", "run", "rule", "line",
    "robots", "blocklist", "robots_status",
})  # fmt: skip


def letter(account: Account) -> Iterator[str]:
    """Yield the lines of the letter. Only the operator's data have an address."""
    yield from map(printable, _sender(account))
    for line in _facts(account):
        yield printable(for_others(line))
    yield from map(printable, _opt_out(account))


def _sender(account: Account) -> Iterator[str]:
    about = for_others(account.url or account.host)
    yield f"Requests of {account.sender.token} to {about}"
    yield f"on {account.day}, all times in UTC"
    yield ""
    yield "Who we are"
    for agent in account.sender.user_agents:
        yield f"  User-Agent: {agent}"
    if account.sender.policy:
        yield f"  Policy:     {account.sender.policy}"
    if account.sender.contact:
        yield f"  Contact:    {account.sender.contact}"
    yield ""


def _facts(account: Account) -> Iterator[str]:
    yield "Our requests"
    for sent in account.requests:
        yield from _sent(sent, account)
    if not account.requests:
        yield "  Nothing: no byte was sent."
    if account.denials:
        yield ""
        yield "Requests that we kept back"
    for denial in account.denials:
        yield f"  {_time(denial.denied_at)}{denial.url}"
        came = _came(denial, account)
        yield from _wrapped(f"kept back by {denial.gate}: {denial.reason}{came}")
    for robots in account.robots:
        yield ""
        yield from _robots(robots)
    yield from _overrides(account.overrides)
    yield ""
    yield from _next(account.outlook)
    yield ""


def _sent(sent: CheckedRequest, account: Account) -> Iterator[str]:
    record = sent.record
    yield f"  {_time(record.requested_at)}{record.url}"
    yield from _wrapped(f"why: {_reason(record)}{_came(record, account)}")
    yield from _wrapped(f"gap: {_gap(sent.gap, account.outlook.domain)}")
    yield from _wrapped(f"answer: {answer_to(record, account.overrides)}")


def answer_to(record: LoggedRequest, overrides: Sequence[Override] = ()) -> str:
    """Return the answer to a request, in words; ``overrides`` are those of its host."""
    if record.duration is None:
        return "not known: the request is in flight, or the crawl was killed before its end"
    answer = "no answer" if record.status is None else str(record.status)
    answer = f"{answer}: {record.error}" if record.error else answer
    held = f"; then on hold for {format_seconds(record.hold)}" if record.hold else ""
    until = record.ended + record.hold
    ends = [
        each.made_at
        for each in overrides
        if each.override == "release" and record.ended <= each.made_at < until
    ]
    if ends:
        held += f", which we ended by hand after {format_seconds(min(ends) - record.ended)}"
    return f"{answer}, after {format_seconds(record.duration)}{held}"


def _came(record: LoggedRequest | LoggedDenial, account: Account) -> str:
    """Say that a redirect led to a request. Another site that redirected here is not named."""
    if record.redirected_from is None:
        return ""
    by = account.redirected_from(record)
    return f"; a redirect {f'of {by}' if by else 'of another host'} led here"


def _reason(record: LoggedRequest) -> str:
    if record.purpose == "robots":
        if record.redirected_from is not None:
            return "it is read as the robots.txt of the host that redirected there"
        return "robots.txt is always fetched first"
    listed = "" if record.blocklist is None else "; its host was not on our blocklist"
    if record.purpose == "blocklist":
        return "our blocklist, or its schema, is published there"
    if record.rule is not None:
        return f"line {record.line} of robots.txt allows it, {record.rule!r}{listed}"
    status = record.robots_status
    if record.robots is not None and _is_absent(status):
        return f"its site gave no robots.txt ({status}), so no rule forbids it{listed}"
    if record.robots is not None:
        return f"no rule of robots.txt is about it{listed}"
    if record.robots_at is not None:
        answer = "no answer" if status is None else status
        until = format_moment(record.robots_at)
        return f"no robots.txt could be read until {until} ({answer}){listed}"
    return f"no gate for robots.txt was in force{listed}"


def _gap(gap: RequestGap, domain: str | None) -> str:
    before = f"previous request{f' to {domain}' if domain else ''}"
    if gap.doubt == CLOCK_SET:
        return "not known, because a clock was set in between"
    if gap.doubt:
        return f"not known, because the end of the {before} is not known"
    if gap.kept is None:
        return f"our request log has no {before}"
    kept = f"none, the {before} had not ended"
    if not gap.is_overlap:
        kept = f"{format_seconds(max(0.0, gap.kept))} after the {before}"
    too_short = ", so it was too short" if gap.is_broken else ""
    after_all = ""
    if gap.released_at is not None:
        after_all = f", as we had ended a hold by hand at {format_moment(gap.released_at)}"
    return f"{kept} (required: {format_seconds(gap.least)}){after_all}{too_short}"


def _robots(robots: RobotsOfDay) -> Iterator[str]:
    yield "The robots.txt"
    yield f"  {robots_url(robots.origin)}"
    for at, status in robots.asked:
        answer = "no answer" if status is None else status
        fetch = f"fetched {format_moment(at)}: {answer}{_means(robots, status)}"
        yield from _wrapped(fetch, "  ")
    if robots.hash is None:
        return
    yield f"  SHA-256 {robots.hash}" if robots.is_kept else "  It is no longer kept."
    last = 0
    for number, text in robots.quoted:
        if number > last + 1:
            yield "        ..."
        yield f"  {number:>5} | {text}"
        last = number


def _means(robots: RobotsOfDay, status: int | None) -> str:
    """Return the meaning of an answer that is not a robots.txt (decision 12)."""
    if _is_absent(status):
        return ", so no rule is in force"
    if robots.hash is None:
        return ", and no earlier file is in force"
    if status == 304 or (status is not None and 200 <= status < 300):
        return ""
    if robots.is_kept and not robots.quoted:
        return ", so no rule is in force"
    return ", and the last file that it gave was this one"


def _is_absent(status: int | None) -> bool:
    return status is not None and 400 <= status < 500 and status != 429


def _overrides(overrides: Sequence[Override]) -> Iterator[str]:
    if overrides:
        yield from ("", "Our changes by hand")
    for each in overrides:
        yield from _wrapped(f"{format_moment(each.made_at)}  {_changed(each)}", "  ")


def _changed(made: Override) -> str:
    reason = made.reason or "no reason given"
    if made.override == "release":
        return f"ended a hold that had {format_seconds(made.seconds)} left: {reason}"
    if not made.seconds:
        return f"ended our delay: {reason}"
    return f"{format_seconds(made.seconds)} at least between two requests from then on: {reason}"


def _next(outlook: Outlook) -> Iterator[str]:
    yield f"Our next requests, as of {format_moment(outlook.at)}"
    for line in outlook.lines():
        yield from _wrapped(line, "  ")
    for target in outlook.targets:
        yield f"  {target.url}"
        yield from _wrapped(target.words(outlook))


def _opt_out(account: Account) -> Iterator[str]:
    sender = account.sender
    yield "How to keep us out"
    yield "  Write into robots.txt:"
    yield from (f"      {line}" for line in sender.opt_out)
    listed = f" Your domain is then put on {sender.blocklist}" if sender.blocklist else ""
    if sender.contact:
        yield from _filled(f"Or write to {sender.contact}.{listed}", "  ")
    elif sender.policy:
        yield from _wrapped(f"Or write to us as described at {sender.policy}.", "  ")


def _time(moment: float) -> str:
    return f"{format_moment(moment)[11:19]}  "[: len(_INDENT)]


def _wrapped(text: str, indent: str = f"  {_INDENT}") -> list[str]:
    return _filled(for_others(text), indent)


def _filled(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def record_of(account: Account) -> dict[str, Any]:
    """Return the object of ``--json``: times as RFC 3339 in UTC, durations in seconds.

    Only the operator's data have an address.
    """
    told = {
        "host": account.host,
        "url": account.url,
        "day": account.day,
        "sender": None,
        "requests": [_request(sent, account) for sent in account.requests],
        "denials": [_denial(denial, account) for denial in account.denials],
        "robots": [robots.as_dict() for robots in account.robots],
        "overrides": [
            asdict(each) | {"made_at": rfc3339(each.made_at)} for each in account.overrides
        ],
        "outlook": account.outlook.as_dict(),
    }
    sender = asdict(account.sender) | {"opt_out": account.sender.opt_out}
    return {name: _for_others(value) for name, value in told.items()} | {"sender": sender}


def _for_others(value: Any) -> Any:  # noqa: ANN401 - of JSON
    if isinstance(value, dict):
        return {name: _for_others(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_for_others(each) for each in value]
    return for_others(value) if isinstance(value, str) else value


def _request(sent: CheckedRequest, account: Account) -> dict[str, Any]:
    record, gap = sent.record, sent.gap
    return _columns(record, account) | {
        "requested_at": rfc3339(record.requested_at),
        "reason": _reason(record) + _came(record, account),
        "gap": gap.kept,
        "required_gap": gap.least,
        "error": record.error or None,
    }


def _denial(denial: LoggedDenial, account: Account) -> dict[str, Any]:
    return _columns(denial, account) | {
        "denied_at": rfc3339(denial.denied_at),
        "reason": denial.reason,
    }


def _columns(record: LoggedRequest | LoggedDenial, account: Account) -> dict[str, Any]:
    """Return the columns; another site that redirected here is not named (decision 36)."""
    columns = {name: value for name, value in record._asdict().items() if name in _COLUMNS}
    return columns | {
        "robots_at": rfc3339(record.robots_at),
        "is_redirected": record.redirected_from is not None,
        "redirected_from": account.redirected_from(record),
    }
