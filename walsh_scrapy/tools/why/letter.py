"""An account as a letter, and as JSON objects.

The letter is plain text that can be mailed, the same at a terminal and in a pipe. Only the contact
of the operator has an address of mail.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.urls import robots_url
from walsh_scrapy.policy.wording import cut, for_others, format_seconds
from walsh_scrapy.tools.show import align

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.tools.why.account import Account, Row

#: Characters of a decision in the table: a rule of robots.txt may be longer.
_MAX_DECISION_LENGTH: Final = 48
#: Characters of the outcome of a visit, which may be a sentence.
_MAX_OUTCOME_LENGTH: Final = 30
#: Said of the host of the blocklist, and of the requests for it.
_LIST_WAITS: Final = "a hold delays the requests for our blocklist for a day at most"
_INDENT: Final = "  "
#: The SHA-256 of no byte: the rules of a site without a robots.txt.
_NOTHING: Final = sha256(b"").hexdigest()
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)Z")


def letter(account: Account) -> Iterator[str]:
    """Yield the lines of the letter."""
    sender = account.sender
    about = for_others(account.url or account.host)
    yield f"Requests of {sender.token} to {about} on {account.day}, all times in UTC"
    yield ""
    for agent in sender.user_agents:
        yield f"User-Agent  {agent}"
    if sender.policy:
        yield f"Policy      {sender.policy}"
    if sender.contact:
        yield f"Contact     {sender.contact}"
    for line in _facts(account):
        yield for_others(line)
    yield ""
    yield "How to keep us out: write into robots.txt"
    yield f"{_INDENT}User-agent: {sender.token}"
    yield f"{_INDENT}Disallow: /"
    if sender.contact:
        yield f"or write to {sender.contact}"
        if sender.blocklist:
            yield f"and your domain is put on {sender.blocklist}"
    elif sender.policy:
        yield f"or write to us as {sender.policy} describes"


def _facts(account: Account) -> Iterator[str]:
    """Yield the lines that the state has; they may have texts of strangers."""
    yield ""
    if account.requests:
        yield from _table(
            ("time", "answer", "gap", "required", "robots.txt", "url"),
            map(_cells, account.requests),
        )
    if any(row["record"] == "request" for row in account.requests):
        units = f"all hosts of {account.domain}" if account.domain else "this host"
        yield f"A gap counts from the end of the last request to {units}. At least 1 s is required,"
        yield "or what Crawl-delay, Request-rate, a slow answer, a hold or our own delay ask for."
    else:
        yield "No request was sent."
    for row in account.requests:
        for note in _notes(row, account.requests):
            yield f"  {row['at'][11:19]}  {note}"
    if account.robots:
        yield ""
        yield "The robots.txt that decided"
        yield from _table(
            ("read at", "answer", "SHA-256", "url"), map(_robots_cells, account.robots)
        )
    if account.overrides:
        yield ""
        yield "What we changed by hand"
        yield from _table(("time", "change", "reason"), map(_override_cells, account.overrides))
    yield ""
    yield f"What comes next, as of {_moment(account.now)}"
    yield from (f"{_INDENT}{line}" for line in _outlook(account))
    if account.visits:
        yield from _table(
            ("not before", "reason", "last outcome", "url"), map(_visit_cells, account.visits)
        )


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for line in align([headings, *rows]))


# ---- a request or a denial ----


def _cells(row: Row) -> tuple[str, ...]:
    decision = cut(_decision(row), _MAX_DECISION_LENGTH)
    return row["at"][11:19], _answer(row), *_gap(row), decision, row["url"]


def _answer(row: Row) -> str:
    if row["record"] == "denial":
        return "not sent"
    if row["status"] is not None:
        return str(row["status"])
    return "unknown" if row["duration"] is None else "no answer"


def _gap(row: Row) -> tuple[str, str]:
    """Return the gap, with its problem, and the required gap, if the gap is known."""
    if row.get("gap") is None:
        return row.get("gap_unknown") or "", ""
    gap = format_seconds(row["gap"])
    if row["problem"]:
        gap = f"{gap}, {row['problem']}"
    return gap, format_seconds(row["required_gap"])


def _decision(row: Row) -> str:
    """Return the line of robots.txt that decided, or what decided instead."""
    status = row["robots_status"]
    if row["line"] is not None:
        return f"line {row['line']}: {row['rule']}"
    if row["record"] == "denial":
        return f"denied by {row['gate']}"
    if row["purpose"] == "robots" or row["url"] == robots_url(row["url"]):
        return "robots.txt itself"
    if row["robots_at"] is None:
        return "our blocklist" if row["purpose"] == "blocklist" else "not asked"
    if status is not None and 400 <= status < 500 and status != 429:
        return f"none there ({status})"
    if row["robots"] is None:
        return f"unreachable ({status or 'no answer'})"
    return "no rule about it"


def _notes(row: Row, rows: Iterable[Row]) -> Iterator[str]:
    """Yield what is special about a request: a redirect, an error, a hold."""
    if row["is_redirected"]:
        source = row["redirected_from"] or "another site"
        wanted = " to its robots.txt" if row.get("purpose") == "robots" else ""
        yield f"a redirect of {source}{wanted} led here"
    if row["record"] == "denial":
        if row["line"] is None or len(_decision(row)) > _MAX_DECISION_LENGTH:
            yield row["reason"]
        return
    if row["duration"] is None:
        yield "it is in flight, or the crawl was killed before it ended"
    if row["error"]:
        yield row["error"]
    if row["hold_request"] is not None:
        day = row["at"][:10]
        until = _moment(row["hold_until"], day)
        cause = f"{row['hold_status'] or 'failure'} of {_moment(row['hold_requested_at'], day)}"
        yield f"a hold until {until} began with the {cause}"
        is_early = row["hold_until"] > row["requested_at"] and row["problem"] is None
        if row["released_at"] is not None:
            yield f"we ended that hold by hand at {_moment(row['released_at'], day)}"
        elif is_early:
            yield _LIST_WAITS
    is_awaited = any(other.get("hold_request") == row["id"] for other in rows)
    if row["hold"] and not is_awaited:
        yield f"then on hold for {format_seconds(row['hold'])}"


# ---- robots.txt, overrides, next visits ----


def _robots_cells(row: Row) -> tuple[str, ...]:
    status = row["status"]
    answer = str(status or "no answer")
    digest = row["sha256"]
    is_good = status is not None and (200 <= status < 300 or status == 304)
    if digest is None or (digest == _NOTHING and not is_good):
        digest = "no file"
    elif not is_good:
        answer += ", so the last good copy"
    moved = row["redirected_to"]
    url = f"{row['url']}, which redirected to {moved}" if moved else row["url"]
    return _moment(row["requested_at"]), answer, digest, url


def _override_cells(row: Row) -> tuple[str, ...]:
    seconds = format_seconds(row["seconds"])
    change = f"ended a hold that had {seconds} left"
    if row["override"] == "delay":
        change = f"set a delay of {seconds}" if row["seconds"] else "ended our delay"
    return _moment(row["made_at"]), change, row["reason"] or ""


def _visit_cells(row: Row) -> tuple[str, ...]:
    reason = _moment(row["due_reason"])
    if row["problem"] == "moved" and row["moved_to"]:
        reason = f"moved to {row['moved_to']}"
    outcome = cut(row["outcome"] or "", _MAX_OUTCOME_LENGTH)
    return _moment(row["next_visit"]), reason, outcome, row["url"]


def _outlook(account: Account) -> Iterator[str]:
    """Yield the reasons that concern the whole host."""
    host = account.host_row
    if account.is_listed:
        but = " except for that list" if account.has_list else ""
        yield f"This host is on our blocklist: it gets no request{but}."
    if account.has_list:
        yield f"Our blocklist is published here: {_LIST_WAITS}."
    if host.get("waits_until"):
        yield f"No request before {_moment(host['waits_until'])}; {host['reason']}."
    elif host.get("reason"):
        yield f"About this host: {host['reason']}."
    if account.sender.follows_links:
        yield "This bot follows links: it may request any page that robots.txt allows."
    elif not account.visits:
        yield f"No source is declared {'with this URL' if account.url else 'here'}."
    if not account.is_listed:
        yield "A redirect of another site can lead us here at any time."


def _moment(text: str, day: str = "") -> str:
    """Return an RFC 3339 time for people, without its day if that is ``day``; else the text."""
    moment = _TIME.sub(r"\1 \2", text)
    return moment.removeprefix(f"{day} ")


# ---- JSON ----


def to_records(account: Account) -> Iterator[dict[str, Any]]:
    """Yield the objects of ``--json``; `record` says what each one is.

    Times are RFC 3339 in UTC, durations seconds.
    """
    about = {"host": account.host, "url": account.url, "day": account.day}
    yield {"record": "sender"} | about | asdict(account.sender)
    is_listed = {"is_listed": account.is_listed, "has_blocklist": account.has_list}
    rows = [
        *account.requests,
        *({"record": "robots"} | row for row in account.robots),
        *({"record": "override"} | row for row in account.overrides),
        {"record": "host"} | account.host_row | is_listed,
        *({"record": "source"} | row for row in account.visits),
    ]
    for row in rows:
        yield {name: _shown(value) for name, value in row.items() if name != "at"}


def _shown(value: Any) -> Any:  # noqa: ANN401 - of any column
    return for_others(value) if isinstance(value, str) else value
