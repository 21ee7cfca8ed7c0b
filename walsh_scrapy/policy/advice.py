"""The words for rows of the views: why something waits, how it went, and what to do about it.

The views have codes, numbers and times. Each function takes a row of one view.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.problems import advise_on_run
from walsh_scrapy.policy.wording import count_of, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    Row = Mapping[str, Any]

#: The advice for a source that a gate denies, by the name of the gate; a command is appended.
_DENIAL_ADVICE: Final = {
    "scope": "No source may be that. Remove it. To see why:",
    "privatehosts": "Its address is not public. Correct it, or remove it. To see why:",
    "blocklist": "It is on a blocklist. Remove it from the sources file. To see on which:",
    "robots": "Its robots.txt does not allow it. Ask its owner, or remove it. To see the rule:",
}
_DENIED: Final = "denied by "
#: Failures in a row after which a source does not come back by itself.
_MANY_FAILURES: Final = 5


# ---- sources ----


def complete_source(row: Row) -> dict[str, Any]:
    """Return a row of `readable_sources` with its words."""
    return {
        **row,
        "outcome": source_outcome(row),
        "advice": _advise_on_source(row),
        "due_reason": _due_reason(row),
    }


def source_outcome(row: Row) -> str:
    """Return how the last visit of a source went: `fetched`, `404 Not Found`, `not visited yet`."""
    outcome: str = row["outcome"]
    status = row["status"]
    if outcome == "new":
        return "not visited yet"
    if outcome.startswith(_DENIED) and 300 <= (status or 0) < 400:
        return f"its redirect is {outcome}"
    if outcome in ("failed", "gone", "refused") and (status or 0) >= 400:
        return _status_in_words(status)
    return (row["detail"] or outcome) if outcome in ("failed", "replaced") else outcome


def _status_in_words(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _advise_on_source(row: Row) -> str | None:
    """Return what to do about the problem of a source; None without one."""
    url = row["url"]
    match row["problem"]:
        case "gone":
            resume = f"walsh sources resume {url}"
            return f"Remove it from the sources file. If it is reachable again: {resume}"
        case "denied":
            gate = row["outcome"].removeprefix(_DENIED)
            if gate in _DENIAL_ADVICE:
                return f"{_DENIAL_ADVICE[gate]} walsh mayfetch {url}"
            return f"{gate}, a middleware of this project, denies it. To see why: walsh why {url}"
        case "refused":
            return "The site wants a wait. To see its end and its reason: walsh hosts"
        case "robots":
            return (
                "Nothing is requested until its robots.txt comes, or says that there is none. If "
                f"it stays away, write to the owner: walsh why {url}"
            )
        case "delay":
            return (
                "Its host wants more than 30 days between two requests, so it is never visited. "
                f"Ask its owner, or remove it. To see the delay: walsh mayfetch {url}"
            )
        case "failing" | "replaced":
            return _advise_on_failure(row)
        case "moved":
            return f"Write the new address into the sources file: {row['moved_to']}"
        case "resent":
            return _advise_on_resent(row)
    return None


def _advise_on_failure(row: Row) -> str:
    url, status = row["url"], row["status"] or 0
    is_long = row["failures"] >= _MANY_FAILURES
    if row["outcome"] == "replaced":
        return (
            "Its feed names another site, so nothing of it is kept. Remove it from the sources "
            f"file, or take it as it is now: walsh sources accept {url}"
        )
    if status in (401, 402, 403):
        return "The site does not want this. Ask its owner, or remove it from the sources file."
    if status in (404, 405, 451):
        return f"Nothing is at this address. Look where it is now: walsh discover {url}"
    if 0 < status < 300:
        others = f"Look for others of the site: walsh discover {url}"
        return f"The document could not be read as a feed. {others}"
    if status >= 500:
        if is_long:
            return "Its server keeps failing. Write to its owner, or remove it."
        return "Its server failed. Nothing to do yet: it is tried again by itself."
    if is_long:
        remedy = f"Check its address, or remove it: walsh discover {url}"
        return f"It has not answered for long. {remedy}"
    return "It did not answer. Nothing to do yet: it is tried again by itself."


def _advise_on_resent(row: Row) -> str:
    cost = "instead of 304 Not Modified, so each visit costs the site a whole document"
    sentence = f"The same document came {_times(row['resent'])} {cost}."
    if (row["etag"] or "").startswith(("W/", "572F")):  # these are the digits of W/
        return (
            f"{sentence} Its ETag is weak: a proxy such as nginx with gzip may have weakened it. "
            "Its owner could compare If-None-Match with and without W/, or use no gzip for feeds."
        )
    owner = "Its owner could compare If-None-Match and If-Modified-Since with its last answer."
    return f"{sentence} {owner}"


def _due_reason(row: Row) -> str:
    """Return why a source is due when it is."""
    if row["is_due"] and row["hold_until"]:
        return f"due, but {row['host']} is on hold until {row['hold_until']}"
    match row["due_rule"]:
        case "gone":
            return "once it is resumed by hand"
        case "new":
            return _reason_of_unvisited(row)
        case "clock":
            return f"its last visit lies in the future, {row['visited_at']}"
        case "resumed":
            return "it was resumed by hand"
        case "asked":
            return _asked_reason(row)
        case "operator":
            return _interval_reason(row)
    return "no longer declared"


def _reason_of_unvisited(row: Row) -> str:
    if row["problem"] in ("robots", "delay"):
        return str(row["outcome"])
    if row["outcome"] != "refused":
        return "not visited yet"
    return f"refused ({row['status']})" if row["status"] else "refused"


def _interval_reason(row: Row) -> str:
    wait = format_seconds(row["due_wait"] or 0)
    if row["failures"]:
        return f"failing, {'doubled to' if row['failures'] > 1 else 'again after'} {wait}"
    is_own = (row["every"] or 0) > row["min_revisit"]
    return f"every {wait}, as declared" if is_own else f"every {wait}"


def _asked_reason(row: Row) -> str:
    wait = format_seconds(row["due_wait"] or 0)
    asked = max(row["server_interval"] or 0, row["feed_interval"] or 0)
    skips = [name for name, key in _SKIPS.items() if row[key]]
    if row["due_wait"] > round(asked) and skips:
        return f"the feed's {' and '.join(skips)}"
    return f"the {'feed' if row['feed_interval'] == asked else 'server'} asks for {wait}"


_SKIPS: Final = {"skipHours": "skip_hours", "skipDays": "skip_days"}


# ---- hosts ----


def complete_host(row: Row) -> dict[str, Any]:
    """Return a row of `readable_hosts` with its words."""
    return {**row, "reason": _host_reason(row) or None, "advice": _advise_on_host(row)}


def _advise_on_host(row: Row) -> str | None:
    match row["problem"]:
        case "hold":
            release = f"walsh hosts release {row['host']} --because REASON"
            if row["hold_by"] == "unreachable":
                return f"Check its name and address. To try again now: {release}"
            return f"Wait until then. To request it earlier, with a reason: {release}"
        case "unreachable":
            return "It comes last in the next run. If it stays away: check its name and address."
        case "server errors":
            return "Nothing to do yet: it gets fewer requests until it answers well again."
    return None


def _host_reason(row: Row) -> str:
    """Return why a host waits, or is slow; "" if it is not."""
    reasons = []
    unreachable = "it was unreachable"
    if row["unreachable"]:
        unreachable = f"{unreachable} {_times(row['unreachable'])}"
    if row["is_on_hold"]:
        reasons.append(f"on hold: {_hold_reason(row, unreachable)}")
    elif row["unreachable"]:
        reasons.append(f"{unreachable}, so it comes last in a run")
    operator_delay = row["operator_delay"] or 0
    is_operators = operator_delay > (row["delay"] or 0) and row["waits_for"] == "delay"
    if row["waits_for"] == "in flight":
        reasons.append("a request is in flight")
    elif row["waits_for"] == "delay":
        delay = format_seconds(max(row["delay"] or 0, operator_delay))
        by_hand = ", a delay set by hand" if is_operators else ""
        reasons.append(f"one request every {delay}{by_hand}")
    if row["server_errors"]:
        answers = f"it answered {_times(row['server_errors'])} with 500, 502 or 504"
        reasons.append(f"{answers}, so its delay is longer")
    if operator_delay and not is_operators:
        reasons.append(f"its delay was set by hand: {format_seconds(operator_delay)}")
    return "; ".join(reasons)


def _hold_reason(row: Row, unreachable: str) -> str:
    status = row["hold_status"]
    answer = f"it answered {status}" if status else "there was no answer"
    match row["hold_by"]:
        case "retry-after":
            return f"{answer} and asked for {format_seconds(row['held_for'])} (Retry-After)"
        case "visit-time":
            return "its robots.txt demands that (Visit-time)"
        case "unreachable":
            return unreachable
        case "backoff":
            again = f", {_times(row['refusals'])}" if row["refusals"] > 1 else ""
            return f"{answer}{again} (our backoff)"
    return "its cause is not recorded"


# ---- runs ----


def complete_run(row: Row) -> dict[str, Any]:
    """Return a row of `readable_runs` with its words."""
    return {**row, "advice": advise_on_run(row["problem"], row["run"], row["undelivered"])}


def _times(number: int) -> str:
    """Return a number of repetitions in words: `1 time in a row`."""
    return f"{count_of(number, 'time')} in a row"
