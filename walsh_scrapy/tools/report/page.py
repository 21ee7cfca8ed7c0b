"""The report as one HTML page: self-contained, without scripts, safe for strangers' texts."""

from __future__ import annotations

import base64
import math
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.wording import count_of, cut, for_others, format_seconds, printable
from walsh_scrapy.tools.output import minute
from walsh_scrapy.tools.report.charts import bars, share_bar, time_line
from walsh_scrapy.tools.report.figures import KINDS, MOST_SOURCES
from walsh_scrapy.tools.report.needs import MOST_TROUBLES, by_advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.tools.report.figures import HostLine, News
    from walsh_scrapy.tools.report.report import Report

#: Rows of the longer parts of the page; it says how many more there are.
MOST_HOSTS: Final = 300
MOST_LINES: Final = 40
MOST_REQUESTS: Final = 60
#: Requests to a host from which on it has a time line; below that its row says it all.
_LEAST_FOR_LINE: Final = 3
#: Days of the chart; more are counted by month.
_MOST_DAYS: Final = 62
_LONGEST_TEXT: Final = 600


def render(report: Report) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("walsh_scrapy.tools.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_written,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count_of": count_of,
        "for_others": for_others,
        "pause": _pause,
        "span": _span,
        "minute": minute,
        "second": _second,
        "rfc3339": rfc3339,
        "seconds": format_seconds,
    }
    # The page's own style sheet has no text of others, and its policy names it by its hash.
    css = environment.get_template("page.css").render()
    groups = _groups(report.news)
    drawn = [line for line in report.lines if len(line.sent) >= _LEAST_FOR_LINE]
    charted = [
        (line, time_line(line, f"line-{number}", f"Pauses before requests to {line.host}"))
        for number, line in enumerate(drawn[:MOST_LINES])
    ]
    return environment.get_template(
        "page.html"
    ).render(
        report=report,
        css=Markup(css),  # noqa: S704
        css_hash=base64.b64encode(sha256(css.encode()).digest()).decode(),
        kinds=KINDS,
        kind_numbers={kind: number for number, kind in enumerate(KINDS)},
        groups=groups,
        by_month=_is_by_month(report.news),
        days_chart=bars(groups, "days", "New entries by day") if len(groups) > 1 else "",
        share_chart=share_bar(report.shares, "share", "Responses") if report.shares else "",
        charted=charted,
        not_charted=len(drawn) - len(charted),
        unchanged=next((share for share in report.shares if share.kind == "unchanged"), None),
        smallest=smallest(report.lines),
        most_hosts=MOST_HOSTS,
        most_requests=MOST_REQUESTS,
        most_sources=MOST_SOURCES,
        most_troubles=MOST_TROUBLES,
        troubles=by_advice(report.troubles[:MOST_TROUBLES]),
    )


def smallest(lines: Sequence[HostLine]) -> HostLine | None:
    """Return the host with the smallest pause; None if no pause is known."""
    paused = [line for line in lines if line.smallest is not None]
    return min(paused, key=lambda line: line.smallest.kept or 0.0, default=None)  # type: ignore[union-attr]


def _is_by_month(news: News) -> bool:
    return len(news.days) > _MOST_DAYS


def _groups(news: News) -> list[tuple[str, int]]:
    """Return the number of new entries of each day, or of each month if there are many days."""
    written = "%Y-%m" if _is_by_month(news) else "%Y-%m-%d"
    groups: Counter[str] = Counter()
    for day, count in news.days:
        groups[day.strftime(written)] += count
    return list(groups.items())


def _written(value: Any) -> Any:  # noqa: ANN401 - whatever the template names
    """Make a text of strangers safe to show to others, and bound it; jinja escapes it later."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(cut(for_others(value), _LONGEST_TEXT))
    return value


def _pause(seconds: float) -> str:
    """Format a pause; a short one in hundredths, rounded down, so that it never looks longer."""
    if abs(seconds) < 10.0:
        return f"{math.floor(100.0 * seconds) / 100.0:.2f} s"
    return format_seconds(seconds)


def _span(first: float, last: float) -> str:
    """Format two times, the second one without its day if that is the same."""
    begin, end = minute(first), minute(last)
    if begin == end:
        return begin
    return f"{begin} to {end[11:] if end[:10] == begin[:10] else end}"


def _second(at: float | None) -> str:
    written = rfc3339(at)
    return written[:19].replace("T", " ") if written else "never"
