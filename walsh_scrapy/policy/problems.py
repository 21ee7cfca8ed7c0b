"""What is wrong, how bad that is, and what to do about it (decision 39).

    facts of the state, as the view `problem_facts` has them -> `problems_of`
    how a run ended -> `run_problem`

All commands, the page, the metrics and the summary of a run take their problems from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from walsh_scrapy.policy.wording import count_of, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
#: Crawls have stopped after so many of their usual gaps, and not before so many seconds.
_MISSED_GAPS: Final = 3
_MIN_STOPPED_SECONDS: Final = 2 * _HOUR
#: The gap between crawls as long as only one is known.
_USUAL_GAP_SECONDS: Final = _DAY
#: A source that is due and was not read for so long is worth a look.
MAX_UNREAD_SECONDS: Final = 7 * _DAY
#: A blocklist is old after so many of its `refresh`, and too old after so many seconds.
_MISSED_REFRESHES: Final = 2
_MAX_BLOCKLIST_SECONDS: Final = 7 * _DAY
#: Many sources fail if it is a quarter of those that were due in so many seconds.
MAX_FAILED_SECONDS: Final = 2 * _DAY
_MIN_FAILED_SOURCES: Final = 5
_MIN_FAILED_HOSTS: Final = 2
_FAILED_PART: Final = 4
#: The hosts that are named, of those with one problem.
MAX_SUBJECTS: Final = 20

#: Ends of a run before it had done its work, as Scrapy names them, in words.
EARLY_ENDS: Final = {
    "export_failed": "an export could not be written",
    "gate_failed": "a gate failed",
    "log_failed": "its log could not be written",
    "machine_trouble": "this machine could not connect",
    "state_failed": "the state failed",
}
_RUN_WORDS: Final = EARLY_ENDS | {
    "killed": "it did not end",
    "nothing_read": "no source was read",
    "no_blocklist": "there never was a blocklist",
    "undelivered": "entries were not delivered",
}
#: The problems of sources, in words.
SOURCE_PROBLEMS: Final = {
    "gone": "gone (410)",
    "failing": "failing",
    "replaced": "replaced by the feed of another site",
    "refused": "refused (429, 503)",
    "robots": "waiting for a robots.txt",
    "delay": "waiting for a delay of over 30 days",
    "denied": "denied",
    "moved": "moved permanently",
    "resent": "never unchanged (304)",
}

#: The codes of all problems, which are the kinds in the metrics.
KINDS: Final = (
    *("addon", "blocklist", "clock", "crawls_stopped", "disk", "files", "hold", "killed"),
    *("last_crawl", "no_crawl", "no_state", "state", "unread"),
    *SOURCE_PROBLEMS,
)


class Severity(StrEnum):
    """How bad a problem is. Notes are no reason for an exit status or an alarm."""

    CRITICAL = "critical"  #: worth waking somebody
    WARNING = "warning"  #: worth a look by day
    NOTE = "note"  #: nothing to do: the crawler obeys

    @property
    def rank(self) -> int:
        """Its place in a list, the worst first."""
        return tuple(Severity).index(self)


class Problem(NamedTuple):
    """A problem, as `walsh status` prints it."""

    severity: Severity
    code: str
    problem: str  #: what is wrong, as a clause
    subject: str | None = None  #: the host, URL, file, run or table
    since: str | None = None  #: when it began, RFC 3339
    advice: str | None = None
    command: str | None = None  #: that shows more

    @property
    def is_urgent(self) -> bool:
        """Whether it is worth an alarm."""
        return self.severity is not Severity.NOTE


# ---- runs ----


def run_problem(finish_reason: str, counts: Mapping[str, int]) -> str:
    """Return the code of what went wrong in a run, "" if nothing did: its exit status is 1.

    ``counts`` are numbers of the run: sources that were ``read`` (fetched or unchanged),
    ``failed_hosts`` (which were requested for sources that failed or were refused, and had not for
    two days), entries that were ``undelivered``, and ``no_blocklist``, which is not 0 if none ever
    came. So dead sources that are due alone, and hosts on hold, are no failed run.
    """
    if finish_reason in EARLY_ENDS:
        return finish_reason
    if counts.get("no_blocklist"):
        return "no_blocklist"
    if not counts.get("read") and counts.get("failed_hosts", 0) >= _MIN_FAILED_HOSTS:
        return "nothing_read"
    return "undelivered" if counts.get("undelivered") else ""


def describe_run_problem(problem: str) -> str:
    """Return a problem of a run in words."""
    return _RUN_WORDS.get(problem, problem)


def advise_on_run(problem: str | None, run: int, undelivered: int | None) -> str | None:
    """Return what to do about a problem of a run; None without one."""
    again = f"walsh new --run {run}"
    if problem is None:
        return None
    if problem == "killed":
        return (
            "Was it killed, or out of memory? The next crawl goes on with the sources that are "
            f"still due. If pipelines or exports need its entries: {again}"
        )
    if undelivered:
        return f"To see its log, and to get its entries again: {again}"
    if problem == "nothing_read":
        return "See why, and whether the network works: walsh sources --failing"
    if problem == "no_blocklist":
        return "Without it nothing is blocked. Its log says why it did not come."
    return "Its log says why it could not go on."


# ---- the state ----


def problems_of(facts: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield the problems that facts show, which are rows of the view `problem_facts`."""
    rows = list(facts)
    read_nothing = any(
        row["code"] == "last_crawl" and row["reason"] == "nothing_read" for row in rows
    )
    for row in rows:
        if read_nothing and row["code"] == "failing":  # it says the same
            continue
        problem = _JUDGES[row["code"]](row)
        if problem is not None:
            yield problem


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems, the worst first, and of equal ones the oldest."""
    return sorted(
        problems, key=lambda row: (row.severity.rank, row.since or "", row.code, row.subject or "")
    )


def changed_since(
    before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the problems that began or ended between two reports, with that as `change`.

    A warning that has become critical began again.
    """
    old, new = (
        {(row["code"], row["subject"]): dict(row) for row in rows} for rows in (before, now)
    )
    began = [
        {"change": "began"} | row
        for key, row in new.items()
        if key not in old or _is_worse(row, old[key])
    ]
    ended = [{"change": "ended"} | row for key, row in old.items() if key not in new]
    return began + ended


def _is_worse(row: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return Severity(row["severity"]).rank < Severity(before["severity"]).rank


def _judge_crawls(fact: Mapping[str, Any]) -> Problem | None:
    if not fact["total"]:
        return Problem(
            Severity.WARNING,
            "no_crawl",
            "no crawl is recorded",
            advice="Start one.",
            command="scrapy crawl feeds",
        )
    gap = fact["number"] or _USUAL_GAP_SECONDS
    if fact["age"] <= max(_MISSED_GAPS * gap, _MIN_STOPPED_SECONDS):
        return None
    usual = f", after one every {format_seconds(round(gap))}" if fact["number"] else ""
    return Problem(
        Severity.CRITICAL,
        "crawls_stopped",
        f"no crawl for {format_seconds(round(fact['age']))}{usual}",
        since=fact["since"],
        advice="Does the scheduler run? Its log, or that of the last crawl, says more.",
        command="walsh runs",
    )


def _judge_last_crawl(fact: Mapping[str, Any]) -> Problem | None:
    if fact["reason"] == "no_blocklist":  # said of the blocklist
        return None
    severity = Severity.WARNING
    if fact["reason"] in ("nothing_read", "state_failed"):
        severity = Severity.CRITICAL
    undelivered = int(fact["number"] or 0)
    return Problem(
        severity,
        "last_crawl",
        f"run {fact['subject']}, the last crawl, went wrong: "
        f"{describe_run_problem(fact['reason'])}",
        None,
        fact["since"],
        advise_on_run(fact["reason"], int(fact["subject"]), undelivered),
        "walsh runs",
    )


def _judge_killed(fact: Mapping[str, Any]) -> Problem:
    return Problem(
        Severity.NOTE,
        "killed",
        "an earlier crawl did not end",
        f"run {fact['subject']}",
        fact["since"],
        advise_on_run("killed", int(fact["subject"]), None),
        "walsh runs",
    )


def _judge_blocklist(fact: Mapping[str, Any]) -> Problem | None:
    if fact["since"] is None:
        return Problem(
            Severity.CRITICAL,
            "blocklist",
            "no blocklist was adopted yet, so nothing is blocked",
            fact["subject"],
            advice="Is its address right? The log of the last crawl says why it did not come.",
            command="walsh runs",
        )
    # In seconds at the last crawl: without a crawl nobody asks for it.
    age = fact["total"] or 0
    if age > _MAX_BLOCKLIST_SECONDS:
        severity = Severity.CRITICAL
    elif age > _MISSED_REFRESHES * (fact["number"] or _DAY):
        severity = Severity.WARNING
    else:
        return None
    return Problem(
        severity,
        "blocklist",
        f"the blocklist has not come for {format_seconds(age)}; its last copy is in force",
        fact["subject"],
        fact["since"],
        "Its server does not answer, or its document is wrong: the log of a crawl says which.",
        "walsh runs",
    )


def _judge_unread(fact: Mapping[str, Any]) -> Problem:
    sources = count_of(int(fact["number"]), "source")
    more = ""
    if fact["hosts"] > MAX_SUBJECTS:
        more = f", as on {count_of(fact['hosts'] - 1, 'other host')}"
    return Problem(
        Severity.WARNING,
        "unread",
        f"{sources} due, and not read for {format_seconds(round(fact['age']))}{more}",
        fact["subject"],
        fact["since"],
        "Look why. If nothing helps, write to the owner, or remove it from the sources file.",
        f"walsh why {fact['subject']}",
    )


def _judge_failing(fact: Mapping[str, Any]) -> Problem | None:
    number, total, hosts = int(fact["number"] or 0), fact["total"] or 0, fact["hosts"] or 0
    is_many = number >= _MIN_FAILED_SOURCES and hosts >= _MIN_FAILED_HOSTS
    if not is_many or _FAILED_PART * number < total:
        return None
    return Problem(
        Severity.WARNING,
        "failing",
        f"{number} of {count_of(total, 'source')} of the last two days fail or are refused, "
        f"on {count_of(hosts, 'host')}",
        advice="Is this machine banned, or its network down?",
        command="walsh sources --failing",
    )


def _judge_sources(fact: Mapping[str, Any]) -> Problem:
    number = int(fact["number"])
    verb = "is" if number == 1 else "are"
    return Problem(
        Severity.WARNING if fact["reason"] == "replaced" else Severity.NOTE,
        fact["reason"],
        f"{count_of(number, 'source')} {verb} {SOURCE_PROBLEMS[fact['reason']]}",
        fact["subject"] if number == 1 else None,
        fact["since"],
        "The list of sources says what to do.",
        "walsh sources",
    )


def _judge_hold(fact: Mapping[str, Any]) -> Problem:
    return Problem(
        Severity.NOTE,
        "hold",
        f"a host is on hold for over a day, until {fact['until']}",
        fact["subject"],
        fact["since"],
        "The list of hosts says why.",
        "walsh hosts",
    )


def _judge_clock(fact: Mapping[str, Any]) -> Problem:
    return Problem(
        Severity.NOTE,
        "clock",
        "times lie in the future, and do not count",
        fact["subject"],
        fact["since"],
        "Is the clock of this machine right? Then another one wrote them, and the next good crawl "
        "ends this.",
    )


_JUDGES: Final = {
    "crawls": _judge_crawls,
    "last_crawl": _judge_last_crawl,
    "killed": _judge_killed,
    "blocklist": _judge_blocklist,
    "unread": _judge_unread,
    "failing": _judge_failing,
    "sources": _judge_sources,
    "hold": _judge_hold,
    "clock": _judge_clock,
}
