"""The report as one HTML page: self-contained, without scripts, safe for strangers' texts.

Its charts are static SVG, with a title for screen readers and no style of their own. Their colours
are those of the page, by the class names that pygal gives, so they follow its colour scheme.
"""

from __future__ import annotations

import base64
import math
import re
import sys
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pygal
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.wording import count_of, cut, for_others, format_seconds, printable
from walsh_scrapy.tools.output import minute
from walsh_scrapy.tools.report.figures import KINDS, MOST_SOURCES, smallest
from walsh_scrapy.tools.report.report import MOST_TROUBLES
from walsh_scrapy.tools.troubles import by_advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.policy.audit.pauses import JudgedRequest
    from walsh_scrapy.tools.report.figures import HostLine, News, Share
    from walsh_scrapy.tools.report.report import Report

# pygal adds a finder for its plugins (maps), which we do not have. Its protocol is that of Python
# before 3.12, so each later import of this process that fails would warn of it.
sys.meta_path[:] = [
    finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)
]

#: Rows of the longer parts of the page; it says how many more there are.
MOST_HOSTS: Final = 300
MOST_LINES: Final = 40
MOST_REQUESTS: Final = 60
#: Requests to a host from which on it has a time line; below that its row says it all.
_LEAST_FOR_LINE: Final = 3
#: Days of the chart; more are counted by month.
_MOST_DAYS: Final = 62
_LONGEST_TEXT: Final = 600
#: Points of one time line; of more, those with the least to spare are kept.
MOST_POINTS: Final = 150
_DAY: Final = 86_400.0
#: Pauses that get a line of their own, in seconds; the second ones where all pauses are alike.
_LADDER: Final = (
    *(0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0),
    *(_DAY, 7 * _DAY, 30 * _DAY),
)
_FINE_LADDER: Final = tuple(sorted({*_LADDER, 0.2, 0.5, 2.0, 5.0, 20.0, 30.0, 120.0, 300.0}))
_LEAST: Final = _LADDER[0]  # a logarithm has no 0
_PLAIN: Final = {
    "css": (),
    "js": (),
    "no_prefix": True,
    "disable_xml_declaration": True,
    "explicit_size": False,
    "show_legend": False,
    "width": 600,
    "margin": 12,
}
#: What a page without scripts has no use for.
_UNUSED: Final = frozenset({"style", "script", "desc"})
_LONG_NUMBER: Final = re.compile(r"(\d+\.\d)\d+")


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


def bars(counts: Sequence[tuple[str, int]], name: str, title: str) -> Markup:
    """Return a bar for each label; ``name`` is unique in the page, ``title`` says what it shows."""
    highest = max((count for _, count in counts), default=0)
    every = max(1, -(-len(counts) // 8))
    labels = [label for label, _ in counts]
    chart = pygal.Bar(
        **_PLAIN,
        height=180,
        range=(0, max(highest, 1)),
        show_minor_x_labels=False,
        value_formatter="{:,.0f}".format,
    )
    chart.x_labels = labels
    chart.x_labels_major = labels[::every]
    chart.y_labels = sorted({0, highest // 2, highest})
    chart.add("", [count for _, count in counts])
    most, when = max(((count, label) for label, count in counts), default=(0, ""))
    return _svg(chart, name, title, f"The most are {most:,}, at {when}.")


def share_bar(shares: Sequence[Share], name: str, title: str) -> Markup:
    """Return one bar, divided by kind of response."""
    chart = pygal.HorizontalStackedBar(
        **_PLAIN | {"margin": 0},
        height=26,
        show_x_labels=False,
        show_y_labels=False,
        show_x_guides=False,
        show_y_guides=False,
        spacing=0,
    )
    percents = {share.kind: share.percent for share in shares}
    chart.range = (0, 100)
    for kind in KINDS:
        chart.add("", [percents.get(kind, 0.0)])
    told = "; ".join(f"{share.percent:.1f} % {KINDS[share.kind]}" for share in shares)
    return _svg(chart, name, title, told)


def time_line(line: HostLine, name: str, title: str) -> Markup:
    """Return the pauses before the requests to a host, and what was asked for, over time."""
    sent = thinned([each for each in line.sent if each.pause.kept is not None])
    first, last = sent[0].record.sent_at, sent[-1].record.sent_at
    kept = [max(each.pause.kept or 0.0, _LEAST) for each in sent]
    asked = [
        (at, max(each.pause.asked, _LEAST))
        for before, each in zip([sent[0], *sent], sent, strict=False)
        for at in (before.record.sent_at, each.record.sent_at)
    ]
    values = kept + [seconds for _, seconds in asked]
    lowest, highest = min(values), max(values)
    ladder = _LADDER if highest > 20 * lowest else _FINE_LADDER
    low, high = max((step for step in ladder if step <= lowest), default=_LEAST), 1.2 * highest
    written = "%H:%M:%S" if last - first < _DAY else "%d %b %H:%M"
    # A little room below: the lowest label must not touch those of the times.
    chart = pygal.XY(
        **_PLAIN | {"margin_left": 40, "margin_right": 40},
        height=220,
        logarithmic=True,
        range=(0.8 * low, high),
        xrange=(first, max(last, first + 1.0)),
        dots_size=3.5,
        value_formatter=format_seconds,
        x_value_formatter=lambda at: datetime.fromtimestamp(at, UTC).strftime(written),
    )
    chart.y_labels = [step for step in ladder if low <= step <= high]
    chart.x_labels = [first + (last - first) * part / 3 for part in range(4)]
    points = [(each.record.sent_at, value) for each, value in zip(sent, kept, strict=True)]
    short = [point for each, point in zip(sent, points, strict=True) if each.pause.is_breach]
    enough = [point for each, point in zip(sent, points, strict=True) if not each.pause.is_breach]
    chart.add("", asked, show_dots=False)
    chart.add("", enough, stroke=False)
    chart.add("", short, stroke=False)
    most = format_seconds(max(seconds for _, seconds in asked))
    told = (
        f"{len(sent)} pauses, the smallest {format_seconds(min(kept))}; asked for: at most {most}."
    )
    return _svg(chart, name, title, told)


def thinned(sent: Sequence[JudgedRequest]) -> Sequence[JudgedRequest]:
    """Return at most `MOST_POINTS`: of each part of the time the one with least to spare."""
    if len(sent) <= MOST_POINTS:
        return sent
    bounds = [len(sent) * part // MOST_POINTS for part in range(MOST_POINTS + 1)]
    parts = (sent[low:high] for low, high in pairwise(bounds))
    return [min(part, key=_spare) for part in parts]


def _spare(each: JudgedRequest) -> float:
    return (each.pause.kept or 0.0) - each.pause.asked


def _svg(chart: Any, name: str, title: str, told: str) -> Markup:  # noqa: ANN401 - of pygal
    """Draw a chart without what is of no use in the page, and with its title."""

    def clean(root: Any) -> Any:  # noqa: ANN401 - of lxml, or of the standard library
        for parent in list(root.iter()):
            for child in [child for child in parent if _is_unused(child, in_root=parent is root)]:
                parent.remove(child)
        for element in root.iter():
            element.attrib.pop("style", None)
            for key, value in element.attrib.items():
                element.attrib[key] = _LONG_NUMBER.sub(r"\1", value)
        _name(root, name, title, told)
        return root

    chart.add_xml_filter(clean)
    return Markup(chart.render(is_unicode=True))  # noqa: S704 - drawn from numbers, serialized


def _is_unused(element: Any, *, in_root: bool) -> bool:  # noqa: ANN401
    """Return True for comments, tooltips, and titles of parts, which repeat their text."""
    if not isinstance(element.tag, str) or element.tag in _UNUSED:
        return True
    is_title_of_part = element.tag == "title" and not in_root
    return is_title_of_part or "tooltip-overlay" in element.attrib.get("class", "")


def _name(root: Any, name: str, title: str, told: str) -> None:  # noqa: ANN401
    heading = root.find("title")
    heading.text = printable(title)
    heading.attrib["id"] = f"{name}-title"
    description = root.makeelement("desc", {"id": f"{name}-desc"})
    description.text = printable(told)
    root.insert(1, description)
    root.attrib["id"] = name
    root.attrib["role"] = "img"
    root.attrib["aria-labelledby"] = f"{name}-title {name}-desc"
