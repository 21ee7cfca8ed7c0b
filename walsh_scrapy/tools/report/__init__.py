"""``walsh report``: an HTML page about the last crawl, or about everything since a moment.

The page has no scripts, and texts of sites are harmless in it. The bar charts are SVG without a
view box, with widths in percent, so that the text in a chart is always as large as the text of the
page.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from walsh_scrapy.policy.advice import complete_host, complete_run, complete_source
from walsh_scrapy.policy.durations import CLOCK_SKEW, format_moment, rfc3339
from walsh_scrapy.policy.problems import SOURCE_PROBLEMS, Problem, Severity, in_order
from walsh_scrapy.policy.wording import count_of, cut, for_others, format_seconds, printable
from walsh_scrapy.state.evidence import TimeSpan
from walsh_scrapy.tools.call import Output
from walsh_scrapy.tools.lists import HOST_ORDER, IS_LISTED, VisitTimes
from walsh_scrapy.tools.show import name_program, to_the_minute
from walsh_scrapy.tools.status import find_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Write the page, and print what it is about on standard error."""
    output = Output.from_call(call)
    now = time.time()
    with call.state() as state:
        period = choose_period(state, now, call.arguments.since)
        problems = find_problems(call.settings, call.options, state, call.sources_file)
        facts = gather(state, call.options, problems, period, now)
    page = render(facts).encode()
    with output.open() as file:
        file.write(page)
    output.report(f"{period.words}: {len(page) / 1024:,.0f} KiB")
    return 0


# The facts: rows of the views, with limits and counts

MAX_PROBLEMS: Final = 30
MAX_SOURCES: Final = 150
MAX_HOSTS: Final = 300
MAX_RUNS: Final = 50
#: The maximum number of headlines for one source, and for all sources together.
MAX_HEADLINES_OF_SOURCE: Final = 8
MAX_HEADLINES: Final = 400
MAX_CHANGES: Final = 100
#: The maximum number of days in a chart; longer periods are shown by month.
MAX_DAYS: Final = 31

#: The kinds of answers to requests, in the order of the page.
ANSWERS: Final = {
    "full": "2xx: documents",
    "unchanged": "304: unchanged",
    "redirect": "3xx: redirects",
    "refused": "429 or 503: wait",
    "absent": "4xx: no robots.txt",
    "client": "4xx: client errors",
    "server": "5xx: server errors",
    "none": "no response",
    "open": "end unknown",
}
_BY_CLASS: Final = {2: "full", 3: "redirect", 4: "client", 5: "server"}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The period of a report; ``words`` are for the heading of the page."""

    span: TimeSpan
    words: str

    @property
    def params(self) -> dict[str, object]:
        """The parameters for the condition that `has` returns."""
        until = rfc3339(self.span.until) or "9999"
        return {"since": rfc3339(self.span.since), "until": until, "run": self.span.run or 0}

    def has(self, moment: str) -> str:
        """Return the SQL condition that the column ``moment`` is in the period."""
        in_span = f"{moment} >= :since AND {moment} <= :until"
        return in_span if self.span.run is None else f"{in_span} AND run = :run"


def choose_period(state: State, now: float, since: float | None = None) -> Period:
    """Return the period since a moment, or of the last crawl. Times are epoch seconds."""
    until = now + CLOCK_SKEW  # because later times come from a wrong clock
    if since is not None:
        span = TimeSpan(since=since, until=until)
        return Period(span=span, words=f"Since {format_moment(since)}")
    last = next(iter(state.runs.latest(1, until=until, only_crawls=True)), None)
    if last is None:
        return Period(span=TimeSpan(since=now, until=until), words="No crawl is recorded")
    end = math.inf if last.ended_at is None else last.ended_at
    span = TimeSpan(since=last.started_at, until=end, run=last.id)
    words = f"Run {last.id} of {last.spider}, {format_moment(last.started_at)}"
    return Period(span=span, words=words)


@dataclass(frozen=True, slots=True)
class Listing:
    """The first rows of a list, and the number of all its rows."""

    rows: Sequence[Row]
    count: int


def gather(
    state: State, options: Options, problems: Iterable[Problem], period: Period, now: float
) -> Row:
    """Return the facts of a period by the names in the template. Raises StateError.

    ``problems`` are those of the project, as `walsh status` has them.
    """
    hosts, gaps = compare(read_gaps(state, period))
    days = _count_days(state, period)
    totals = Counter[str]()
    for counts in days.values():
        totals.update(counts)
    answers = {name: totals[name] for name in ANSWERS if totals[name]}
    unit, groups = group_days(days)
    runs = _list(
        state, "readable_runs", period.has("started_at"), _RUN_ORDER, MAX_RUNS, period.params
    )
    runs = Listing([complete_run(row) for row in runs.rows], runs.count)
    for row in runs.rows:
        row["versions"] = json.loads(row["versions"])
    ends = [datetime.fromisoformat(row["ended_at"]) for row in runs.rows if row["ended_at"]]
    sources = _count_sources(state)
    failing_rows = state.rows(
        "readable_sources",
        where="problem IS NOT NULL AND is_declared",
        order_by="rank, url",
        limit=MAX_SOURCES,
    )
    failing = [complete_source(row) for row in failing_rows]
    visit_times = VisitTimes(state, options, now)
    for row in failing:
        visit_times.apply(row)
    waiting = _list(state, "readable_hosts", IS_LISTED, HOST_ORDER, MAX_HOSTS)
    listed_problems = [
        problem._asdict() | {"section": _SECTIONS.get(problem.code)}
        for problem in in_order([*_short_gaps(hosts), *problems])
    ]
    return {
        "words": period.words,
        "made_at": rfc3339(now),
        "age": max(0.0, now - max(ends).timestamp()) if ends else None,
        "is_well": not any(problem["severity"] != Severity.NOTE for problem in listed_problems),
        "problems": Listing(listed_problems[:MAX_PROBLEMS], len(listed_problems)),
        "sources": sources.total(),
        "failing": Listing(failing, sources.total() - sources[None]),
        "waiting": Listing([complete_host(row) for row in waiting.rows], waiting.count),
        "entries": totals["new_entries"],
        "news": _read_new_entries(state, period),
        "changes": _read_changes(state, period),
        "hosts": Listing(hosts[:MAX_HOSTS], len(hosts)),
        "gaps": gaps,
        "gap_requests": sum(row["requests"] for row in hosts),
        "requests": sum(answers.values()),
        "answers": answers,
        "success": measure_success(answers),
        "unit": unit,
        "days": groups,
        "runs": runs,
        "log_days": options.log_days,
    }


def measure_success(answers: Mapping[str, int]) -> float | None:
    """Return the share of requests with a document, a 304 or a redirect; None without a request.

    A 4xx for a robots.txt is an answer too: there is none, and everything is allowed. Requests
    whose end is unknown are ignored.
    """
    ended = sum(answers.values()) - answers.get("open", 0)
    good = sum(answers.get(name, 0) for name in ("full", "unchanged", "redirect", "absent"))
    return good / ended if ended else None


_RUN_ORDER: Final = "CASE WHEN problem IS NULL THEN 1 ELSE 0 END, started_at DESC, run DESC"


def _list(
    state: State,
    view: str,
    where: str,
    order_by: str,
    limit: int,
    params: Mapping[str, Any] | None = None,
) -> Listing:
    """Return the first rows of a view, and the number of all rows."""
    rows = list(state.rows(view, where=where, order_by=order_by, limit=limit, params=params))
    if len(rows) < limit:
        return Listing(rows, len(rows))
    (counted,) = state.rows(view, columns="count(*) AS number", where=where, params=params)
    return Listing(rows, counted["number"])


def _count_sources(state: State) -> Counter[str | None]:
    """Return the number of declared sources by problem, with None for no problem."""
    rows = state.rows(
        "readable_sources",
        columns="problem, count(*) AS number",
        where="is_declared",
        group_by="problem",
    )
    return Counter({row["problem"]: row["number"] for row in rows})


# ---- problems that only a whole log shows ----

#: The sections of the page by the problems that they show.
_SECTIONS: Final = {
    "short_gaps": "gaps",
    "hold": "waiting",
    "last_crawl": "runs",
    "killed": "runs",
    "crawls_stopped": "runs",
    **dict.fromkeys(SOURCE_PROBLEMS, "failing"),
    "failing": "failing",
    "unread": "failing",
}


def _short_gaps(hosts: Sequence[Row]) -> Iterator[Problem]:
    """Yield a problem if gaps between requests were shorter than required."""
    short = [row["too_short"] for row in hosts if row["too_short"]]
    if short:
        subject = f"{count_of(sum(short), 'gap')} at {count_of(len(short), 'host')}"
        problem = "gaps shorter than required"
        yield Problem(Severity.CRITICAL, "short_gaps", problem, subject)


# ---- requests and new entries by day ----


def _count_days(state: State, period: Period) -> dict[str, Counter[str]]:
    """Return the number of requests by answer, and of new entries, for each day."""
    days = defaultdict[str, Counter[str]](Counter)
    requests = state.rows(
        "readable_requests",
        columns="substr(requested_at, 1, 10) AS day, status, duration IS NULL AS is_open, purpose, "
        "count(*) AS requests",
        where=period.has("requested_at"),
        group_by="1, 2, 3, 4",
        params=period.params,
    )
    for row in requests:
        answer = name_answer(row["status"], row["purpose"], is_open=row["is_open"])
        days[row["day"]][answer] += row["requests"]
    entries = state.rows(
        "readable_entries",
        columns="substr(first_seen, 1, 10) AS day, count(*) AS entries",
        where=period.has("first_seen"),
        group_by="1",
        params=period.params,
    )
    for row in entries:
        days[row["day"]]["new_entries"] = row["entries"]
    return days


def name_answer(status: int | None, purpose: str, *, is_open: bool) -> str:
    """Return the kind of an answer, which is a key of ANSWERS, to a request for a purpose."""
    if status is None:
        return "open" if is_open else "none"
    if status in (429, 503):
        return "refused"
    if status == 304:
        return "unchanged"
    if purpose == "robots" and 400 <= status < 500:
        return "absent"
    return _BY_CLASS.get(status // 100, "none")


def group_days(days: Mapping[str, Counter[str]]) -> tuple[str, dict[str, Counter[str]]]:
    """Return the unit of the chart, day or month, and the counts for each of them."""
    if not days:
        return "day", {}
    first = date.fromisoformat(min(days))
    last = date.fromisoformat(max(days))
    length = (last - first).days + 1
    if length <= MAX_DAYS:
        labels = [str(first + timedelta(days=number)) for number in range(length)]
        return "day", {label: days.get(label, Counter()) for label in labels}
    months = defaultdict[str, Counter[str]](Counter)
    for day in sorted(days):
        months[day[:7]].update(days[day])
    return "month", dict(list(months.items())[-MAX_DAYS:])


# ---- new entries by source ----


def _read_new_entries(state: State, period: Period) -> Listing:
    """Return the sources with the most new entries, and their newest entries."""
    rows = list(
        state.rows(
            "readable_entries",
            columns="source, count(*) AS entries, count(*) OVER () AS sources, "
            "substr(min(first_seen), 1, 10) AS first_day, "
            "substr(max(first_seen), 1, 10) AS last_day",
            where=period.has("first_seen"),
            group_by="source",
            order_by="entries DESC, source",
            limit=MAX_SOURCES,
            params=period.params,
        )
    )
    newest = defaultdict[str, list[Row]](list)
    for entry in _read_headlines(state, period, [row["source"] for row in rows]):
        newest[entry["source"]].append(entry)
    for row in rows:
        row["newest"] = newest[row["source"]]
        row["name"] = row["newest"][0]["source_name"]
    return Listing(rows, rows[0]["sources"] if rows else 0)


def _read_changes(state: State, period: Period) -> Listing:
    """Return the entries whose title changed in the period, the latest change first."""
    span = period.span
    changed = "SELECT key FROM entries WHERE entries.changed_at BETWEEN :since AND :until"
    where = f"key IN ({changed}) AND changed_at IS NOT NULL"
    params = {"since": span.since, "until": span.until}
    order = "changed_at DESC, url"
    return _list(state, "readable_entries", where, order, MAX_CHANGES, params)


#: The newest entries of each source. This reads the table, because the view has no indexes.
_NEWEST: Final = """key IN (
    SELECT key FROM (
        SELECT key, row_number() OVER (PARTITION BY source ORDER BY first_seen DESC, key) AS place
        FROM entries WHERE source IN ({sources}) AND first_seen BETWEEN :first AND :last {in_run}
    ) AS ranked WHERE place <= :number)"""


def _read_headlines(state: State, period: Period, sources: Sequence[str]) -> Iterator[Row]:
    """Yield the newest entries of each source, the newest ones first."""
    span = period.span
    names = {f"source{number}": url for number, url in enumerate(sources)}
    number = min(MAX_HEADLINES_OF_SOURCE, MAX_HEADLINES // max(len(sources), 1))
    where = _NEWEST.format(
        sources=", ".join(f":{name}" for name in names) or "NULL",
        in_run="" if span.run is None else "AND run = :run",
    )
    params = {"first": span.since, "last": span.until, "number": number, "run": span.run}
    return state.rows(
        "readable_entries",
        where=where,
        order_by="first_seen DESC, key",
        params=params | names,
    )


# The chart of the pace

#: The maximum number of requests, the last ones of the period.
MAX_REQUESTS: Final = 100_000
#: The classes of gaps, as multiples of the required gap.
GAPS: Final = {
    "short": "too short",
    "x1": "1 to 1.5 times",
    "x15": "1.5 to 2 times",
    "x2": "2 to 5 times",
    "x5": "5 to 10 times",
    "x10": "10 times or more",
}
_MULTIPLES: Final = ((10.0, "x10"), (5.0, "x5"), (2.0, "x2"), (1.5, "x15"))


def read_gaps(state: State, period: Period) -> Iterator[Row]:
    """Yield the requests of a period with their gaps, the last request first.

    The request before a gap may be of any run. An unknown gap is None.
    """
    return state.rows(
        "request_gaps",
        columns="host, requested_at, gap, required_gap AS required, problem, "
        "required_gap > delay AS by_hold",
        where=period.has("requested_at"),
        order_by="requested_at DESC, id DESC",
        limit=MAX_REQUESTS,
        params=period.params,
    )


def compare(rows: Iterable[Row]) -> tuple[list[Row], Counter[str]]:
    """Return a row for each host, and the number of gaps by the keys of GAPS.

    Hosts with gaps that are too short come first, then the hosts with the most requests.
    """
    hosts: dict[str, Row] = {}
    gaps = Counter[str]()
    for row in rows:
        new = {"host": row["host"], "requests": 0, "too_short": 0, "shortest": None, "longest": row}
        host = hosts.setdefault(row["host"], new | {"last_at": row["requested_at"]})
        host["requests"] += 1
        host["first_at"] = row["requested_at"]
        host["too_short"] += row["problem"] is not None
        if row["problem"]:
            gaps["short"] += 1
        elif row["gap"] is not None:
            gaps[_name_gap(row["gap"], row["required"])] += 1
        if row["gap"] is not None:
            host["shortest"] = min(host["shortest"] or row, row, key=lambda gap: gap["gap"])
            host["longest"] = max(host["longest"], row, key=lambda gap: gap["required"])
    by_urgency = sorted(
        hosts.values(), key=lambda host: (-host["too_short"], -host["requests"], host["host"])
    )
    return by_urgency, gaps


def _name_gap(gap: float, required: float) -> str:
    for multiple, name in _MULTIPLES:
        if gap >= multiple * required:
            return name
    return "x1"


# The page

_MAX_TEXT_LENGTH: Final = 600
#: Where bars begin and end, in percent of the width of a chart. Labels are left, numbers right.
_LEFT: Final = 28.0
_RIGHT: Final = 88.0
#: The minimum width of a part of a bar, in percent.
_MIN_WIDTH: Final = 0.5


def render(facts: Mapping[str, Any]) -> str:
    """Return the page with the facts that `gather` returned."""
    environment = Environment(
        loader=PackageLoader("walsh_scrapy.tools.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_make_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "command": name_program,
        "count_of": _count,
        "cut": cut,
        "duration": format_seconds,
        "minutes": to_the_minute,
        "number": "{:,}".format,
        "percent": "{:.1%}".format,
        "seconds": _format_gap,
    }
    environment.tests["link"] = _is_link
    # The style sheet has no text of sites. The policy of the page has its hash.
    css = environment.get_template("page.css").render()
    by_answer = {
        day: {name: counts[name] for name in ANSWERS} for day, counts in facts["days"].items()
    }
    by_length = {label: {name: facts["gaps"][name]} for name, label in GAPS.items()}
    return environment.get_template("page.html").render(
        report=facts,
        answers=ANSWERS,
        answer_bars=draw_bars(by_answer),
        gap_bars=draw_bars(by_length) if facts["gaps"] else [],
        css=Markup(css),  # noqa: S704
        css_hash=base64.b64encode(sha256(css.encode()).digest()).decode(),
    )


def _make_safe(value: Any) -> Any:  # noqa: ANN401 - values of any type
    """Cut a text, and remove what must not be shown to others; jinja escapes the text later."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(cut(for_others(value), _MAX_TEXT_LENGTH))
    return value


def _is_link(url: str | None) -> bool:
    """Return True for an http or https URL without credentials."""
    return url is not None and url.startswith(("http://", "https://")) and url == for_others(url)


def _count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number and its noun, such as 1,234 sources."""
    noun = count_of(number, singular, plural).partition(" ")[2]
    return f"{number:,} {noun}"


def _format_gap(seconds: float) -> str:
    """Format a gap, with hundredths if it is short, rounded down so that it never looks longer."""
    if abs(seconds) < 10.0:
        return f"{math.floor(100.0 * seconds) / 100.0:.2f} s"
    return format_seconds(seconds)


class Bar(NamedTuple):
    """One bar of a chart."""

    label: str
    parts: list[tuple[str, float, float]]  #: name, begin and width in percent of the chart
    end: float  #: in percent of the chart
    total: int


def draw_bars(rows: Mapping[str, Mapping[str, int]]) -> list[Bar]:
    """Return a bar for each row of counts by name; the longest bar fills the chart."""
    longest = max((sum(counts.values()) for counts in rows.values()), default=0)
    scale = (_RIGHT - _LEFT) / max(longest, 1)
    return [_draw_bar(label, counts.items(), scale) for label, counts in rows.items()]


def _draw_bar(label: str, counts: Iterable[tuple[str, int]], scale: float) -> Bar:
    parts: list[tuple[str, float, float]] = []
    total = 0
    for name, count in counts:
        if count:
            width = max(scale * count, _MIN_WIDTH)
            parts.append((name, round(_LEFT + scale * total, 2), round(width, 2)))
        total += count
    return Bar(label, parts, round(_LEFT + scale * total, 2), total)
