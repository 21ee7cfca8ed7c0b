"""An account as a letter to the owner of a host, and as JSON objects.

The letter is plain text that can be mailed. It has no mail address but the contact of the operator.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.robots.copy import MAX_UNUSED_IN_RUN_SECONDS
from walsh_scrapy.policy.urls import robots_url
from walsh_scrapy.policy.wording import count_of, cut, for_others, format_seconds
from walsh_scrapy.tools.show import align
from walsh_scrapy.tools.why import describe_missing, is_good

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.tools.why import Account, Row

#: The maximum length of a decision in the table, because a rule of robots.txt may be long.
_MAX_DECISION_LENGTH: Final = 48
#: The maximum length of the outcome of a visit, which may be a sentence.
_MAX_OUTCOME_LENGTH: Final = 30
#: The sentence about the host of the blocklist, and about the requests for the blocklist.
_BLOCKLIST_HOLD: Final = "a hold delays requests for our blocklist by at most a day"
_INDENT: Final = "  "
#: The SHA-256 of an empty file, which stands for a missing robots.txt.
_EMPTY_SHA256: Final = sha256(b"").hexdigest()
#: The maximum lifetime of a robots.txt that makes no request wait, whatever WALSH_ROBOTS_TTL is.
_ROBOTS_HOURS: Final = MAX_UNUSED_IN_RUN_SECONDS / 3600.0
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)Z")


def letter(account: Account) -> Iterator[str]:
    """Yield the lines of the letter."""
    sender = account.sender
    about = for_others(account.url or account.host)
    yield f"Requests of {sender.token} to {about} {account.days.words}, all times in UTC"
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
    if account.is_shut:
        yield "How to keep us out: our last copy of your robots.txt denies everything to us;"
    else:
        yield "How to keep us out: add these lines to your robots.txt"
        yield f"{_INDENT}User-agent: {sender.token}"
        yield f"{_INDENT}Disallow: /"
    if sender.contact:
        yield f"or write to {sender.contact}"
        if sender.blocklist:
            yield f"to have your domain put on {sender.blocklist}"
    elif sender.policy:
        yield f"or write to us as {sender.policy} describes"
    yield f"A changed robots.txt counts within {_ROBOTS_HOURS:.0f} hours; only a request that waits"
    yield "because of your robots.txt may use an older copy."


def _facts(account: Account) -> Iterator[str]:
    """Yield the lines about the requests, which may quote the site."""
    yield ""
    if account.requests:
        bot = ("bot",) if account.others else ()
        headings = (*bot, "time", "answer", "gap", "required", "robots.txt", "url")
        cells = [_request_cells(row, account) for row in account.requests]
        yield from _table(headings, cells)
    if any(row["record"] == "request" for row in account.requests):
        units = f"all hosts of {account.domain}" if account.domain else "this host"
        yield f"A gap begins at the end of the previous request to {units}. The minimum is 1 s;"
        yield "Crawl-delay, Request-rate, a slow answer, a hold or our own delay can require more."
    else:
        yield "No request is recorded." if account.missing else "No request was sent."
    for row in account.missing:
        yield _format_moment(describe_missing(row))
    for row in account.requests:
        for note in _notes(row, account):
            yield f"{_INDENT}{_format_time(row, account)}  {note}"
    for row in account.others:
        yield _describe_other_bot(row)
    if account.robots:
        yield ""
        yield "The robots.txt that we obeyed"
        yield from _table(
            ("read at", "answer", "SHA-256", "url"), map(_robots_cells, account.robots)
        )
    if account.overrides:
        yield ""
        yield "What we changed by hand"
        yield from _table(("time", "change", "reason"), map(_override_cells, account.overrides))
    yield ""
    yield f"What comes next, as of {_format_moment(account.now)}"
    yield from (f"{_INDENT}{line}" for line in _describe_outlook(account))
    if account.visits and not account.is_listed:
        yield from _table(
            ("not before", "reason", "last outcome", "url"), map(_visit_cells, account.visits)
        )


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for line in align([headings, *rows]))


# ---- a request or a denial ----


def _request_cells(row: Row, account: Account) -> tuple[str, ...]:
    decision = cut(_describe_decision(row), _MAX_DECISION_LENGTH) + _name_copy(row, account)
    time = _format_time(row, account)
    bot = (row["bot"],) if account.others else ()
    return *bot, time, _describe_answer(row), *_gap_cells(row), decision, row["url"]


def _format_time(row: Row, account: Account) -> str:
    """Return the time of a row, with the day if the letter is about several days."""
    time = _format_moment(row["at"])
    return time[11:] if account.days.is_one else time


def _name_copy(row: Row, account: Account) -> str:
    """Return which of several robots.txt of an origin decided: when it was requested last."""
    is_decided = row["robots_at"] is not None and row.get("purpose") != "robots"
    url = robots_url(row["url"])
    if not is_decided or sum(copy["url"] == url for copy in account.robots) < 2:
        return ""
    return f" (of {_format_moment(row['robots_at'], row['at'][:10])})"


def _describe_answer(row: Row) -> str:
    if row["record"] == "denial":
        return "not sent"
    if row["status"] is not None:
        return str(row["status"])
    return "unknown" if row["duration"] is None else "no answer"


def _gap_cells(row: Row) -> tuple[str, str]:
    """Return the gap with its problem, or why it is unknown, and the required gap."""
    if row.get("gap") is None:
        # The log shows no earlier request, but one may be deleted or too old to be kept.
        reason = row.get("gap_unknown") or ""
        return reason.replace("no earlier request", "first in our log"), ""
    gap = format_seconds(row["gap"])
    if row["problem"]:
        gap = f"{gap}, {row['problem']}"
    return gap, format_seconds(row["required_gap"])


def _describe_decision(row: Row) -> str:
    """Return the line of robots.txt that decided, or another reason."""
    status = row["robots_status"]
    if row["line"] is not None:
        return f"line {row['line']}: {row['rule']}"
    if row["record"] == "denial":
        return f"denied by {row['gate']}"
    if row["purpose"] == "robots" or row["url"] == robots_url(row["url"]):
        return "robots.txt itself"
    if row["robots_at"] is None:
        return "our blocklist" if row["purpose"] == "blocklist" else "not checked"
    if status is not None and 400 <= status < 500 and status != 429:
        return f"no robots.txt ({status})"
    if row["robots"] is None:
        return f"unreachable ({status or 'no answer'})"
    return "no rule matches"


def _notes(row: Row, account: Account) -> Iterator[str]:
    """Yield notes about a request: a redirect, an error, a hold, a Visit-time."""
    if row["is_redirected"]:
        source = row["redirected_from"] or "another site"
        wanted = ", for its robots.txt" if row.get("purpose") == "robots" else ""
        yield f"redirected here by {source}{wanted}"
    if row["record"] == "denial":
        if row["line"] is None or len(_describe_decision(row)) > _MAX_DECISION_LENGTH:
            yield row["reason"]
        return
    if row["duration"] is None:
        yield "the request is in flight, or the crawl was killed before the response ended"
    if row["error"]:
        yield row["error"]
    yield from _waiting_notes(row, account)


def _waiting_notes(row: Row, account: Account) -> Iterator[str]:
    """Yield notes about what a request waited for, and about the hold after it."""
    day = row["at"][:10]
    if row["hold_until"] is not None:
        yield _describe_hold(row, day, account.domain)
        if row["released_at"] is None and row["hold_until"] > row["at"] and not row["problem"]:
            yield _BLOCKLIST_HOLD
    if began_at := row["visit_time_began_at"]:
        previous = row["previous_ended_at"]
        if previous is None or previous < began_at:
            yield f"the Visit-time of robots.txt began at {_format_moment(began_at, day)}"
    is_mentioned = any(later.get("hold_request") == row["id"] for later in account.requests)
    if row["hold"] and not is_mentioned:
        ended_at = row["hold_ended_at"]
        end = f"; the operator ended that at {_format_moment(ended_at, day)}" if ended_at else ""
        yield f"then on hold for {format_seconds(row['hold'])}{end}"


def _describe_hold(row: Row, day: str, domain: str | None) -> str:
    """Return how long and why the host was on hold before a request."""
    until = f"on hold until {_format_moment(row['released_at'] or row['hold_until'], day)}"
    if row["hold_request"] is None:
        reason = f"as all hosts of {domain}"
    else:
        answer = row["hold_status"] or "failure"
        reason = f"because of the {answer} of {_format_moment(row['hold_requested_at'], day)}"
    if row["released_at"] is None:
        return f"{until}, {reason}"
    end = _format_moment(row["hold_until"], day)
    return f"{until}, {reason}; the operator ended the hold then, which was to end at {end}"


def _describe_other_bot(row: Row) -> str:
    """Return a sentence about another bot that uses the same state."""
    return (
        f"{row['bot']} is another bot ({row['user_agent']}), which keeps the same delays with us. "
        "This letter does not speak for it."
    )


# ---- robots.txt, overrides, next visits ----


def _robots_cells(row: Row) -> tuple[str, ...]:
    status = row["status"]
    answer = str(status or "no answer")
    digest = row["sha256"]
    if digest is None:
        digest = "not recorded" if row["has_rule"] or is_good(status) else "no file"
    elif is_good(status):
        pass
    elif digest == _EMPTY_SHA256:
        digest = "no file"
    elif row["read_at"] is None:
        answer += ", so the last good copy was used"
    else:
        answer += f", so the last good copy was used, of {_format_moment(row['read_at'])}"
    moved = row["redirected_to"]
    url = f"{row['url']}, which redirected to {moved}" if moved else row["url"]
    return _format_moment(row["requested_at"]), answer, digest, url


def _override_cells(row: Row) -> tuple[str, ...]:
    seconds = format_seconds(row["seconds"])
    forgotten = count_of(row["requests"] or 0, "request")
    changes = {
        "release": f"ended a hold {seconds} early",
        "delay": f"set a delay of {seconds}" if row["seconds"] else "removed our delay",
        "resume": f"resumed {row['url']}",
        "accept": f"accepted the feed of {row['url']} as it is",
        "forget": f"deleted {forgotten} of {row['url'] or row['host']}",
    }
    return _format_moment(row["made_at"]), changes[row["override"]], row["reason"] or ""


def _visit_cells(row: Row) -> tuple[str, ...]:
    reason = _format_moment(row["due_reason"])
    if row["problem"] == "moved" and row["moved_to"]:
        reason = f"moved to {row['moved_to']}"
    outcome = cut(row["outcome"] or "", _MAX_OUTCOME_LENGTH)
    return _format_moment(row["next_visit"]), reason, outcome, row["url"]


def _describe_outlook(account: Account) -> Iterator[str]:
    """Yield what is true for the whole host."""
    host = account.host_row
    if account.is_listed:
        exception = " except for the blocklist itself" if account.has_list else ""
        yield f"This host is on our blocklist: nothing will be requested{exception}."
    if account.has_list:
        yield f"Our blocklist is published on this host: {_BLOCKLIST_HOLD}."
    if account.is_listed and not account.has_list:
        return
    if host.get("waits_until"):
        yield f"No request before {_format_moment(host['waits_until'])}; {host['reason']}."
    elif host.get("reason"):
        yield f"About this host: {host['reason']}."
    if account.is_listed:
        return
    if account.sender.follows_links:
        yield "This bot follows links: it may request any page that robots.txt allows."
    elif not account.visits:
        yield f"We have no source {'with this URL' if account.url else 'on this host'}."
    yield "A redirect from another site can lead us here at any time."


def _format_moment(text: str, day: str = "") -> str:
    """Return a text with readable times, without the day if it is ``day``."""
    return _TIME.sub(r"\1 \2", text).removeprefix(f"{day} ")


# ---- JSON ----


def to_records(account: Account) -> Iterator[dict[str, Any]]:
    """Yield the objects for ``--json``; the key `record` has the kind of each object.

    Times are RFC 3339 times in UTC, durations are seconds.
    """
    about = {"host": account.host, "url": account.url} | asdict(account.days)
    yield {"record": "sender"} | about | asdict(account.sender)
    is_listed = {"is_listed": account.is_listed, "has_blocklist": account.has_list}
    is_shut = {"robots_denies_all": account.is_shut}
    rows = [
        *account.requests,
        *({"record": "other_bot"} | row for row in account.others),
        *({"record": "robots"} | row for row in account.robots),
        *({"record": "override"} | row for row in account.overrides),
        *({"record": "missing"} | row for row in account.missing),
        {"record": "host"} | account.host_row | is_listed | is_shut,
        *({"record": "source"} | row for row in account.visits),
    ]
    for row in rows:
        yield {name: _redact(value) for name, value in row.items() if name != "at"}


def _redact(value: Any) -> Any:  # noqa: ANN401 - columns have any type
    return for_others(value) if isinstance(value, str) else value
