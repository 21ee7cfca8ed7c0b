"""The report as one HTML page: self-contained, without scripts, safe for strangers' texts.

Its charts are static SVG, with a title for screen readers and without styles. Their colours are
those of the page, by the class names that pygal gives, so they follow its colour scheme.
"""

from __future__ import annotations

import base64
import math
import sys
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import pygal
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.wording import count_of, cut, for_others, format_seconds, printable
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.report import KINDS, MOST_PROBLEMS, MOST_SOURCES
from walsh_scrapy.tools.report.hostrows import COLUMNS as HOSTS
from walsh_scrapy.tools.report.output import facts, minute, shown
from walsh_scrapy.tools.report.overview import COLUMNS as SOURCES
from walsh_scrapy.tools.report.runrows import COLUMNS as RUNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from walsh_scrapy.tools.report import Report

# pygal adds a finder for its plugins (maps), which we do not have. Its protocol is that of Python
# before 3.12, so each later import of this process that fails would warn of it.
sys.meta_path[:] = [
    finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)
]

#: Rows of the longer parts of the page; it counts the others.
MOST_HOSTS: Final = 300
#: Days of the chart; more are counted by month.
_MOST_DAYS: Final = 62
_LONGEST_TEXT: Final = 600
#: Columns of a source that its problem shows already.
_SHOWN_ABOVE: Final = ("problem", "advice")
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
        "facts": facts,
        "for_others": for_others,
        "gap": _gap,
        "percent": "{:.1%}".format,
        "span": _span,
        "span_of": format_seconds,
        "minute": minute,
        "rfc3339": rfc3339,
    }
    # The page's style sheet has no text of others, and its policy names it by its hash.
    css = environment.get_template("page.css").render()
    # The number of new entries of each day, or of each month if there are many days.
    by_month = len(report.news.days) > _MOST_DAYS
    written = "%Y-%m" if by_month else "%Y-%m-%d"
    counts = Counter[str]()
    for day, count in report.news.days:
        counts[day.strftime(written)] += count
    groups = list(counts.items())
    return environment.get_template("page.html").render(
        report=report,
        program=program_name(),
        css=Markup(css),  # noqa: S704
        css_hash=base64.b64encode(sha256(css.encode()).digest()).decode(),
        groups=groups,
        by_month=by_month,
        headings=_headings(report),
        kinds=KINDS,
        days_chart=days_chart(groups) if _differ(count for _, count in groups) else "",
        answers_chart=answers_chart(report.answers) if _differ(report.answers.values()) else "",
        most_hosts=MOST_HOSTS,
        most_sources=MOST_SOURCES,
        most_problems=MOST_PROBLEMS,
        source_columns=[each for each in SOURCES if not each.name.startswith(_SHOWN_ABOVE)],
        host_columns=shown(HOSTS),
        run_columns=shown(RUNS),
    )


def _headings(report: Report) -> dict[str, str]:
    """Return the sections that have something to show, in the order of the page."""
    sections = {
        "new": ("New entries", report.news.count),
        "sources": ("Sources with problems", report.problems),
        "waiting": ("Hosts that wait", report.waiting),
        "gaps": ("Gaps between requests", report.lines),
        "responses": ("Responses", report.answers),
        "runs": ("Runs", report.runs),
    }
    return {name: heading for name, (heading, content) in sections.items() if content}


def _differ(counts: Iterable[int]) -> bool:
    """Return True if bars of these heights show more than their number does."""
    return len(set(counts)) > 1


def _written(value: Any) -> Any:  # noqa: ANN401 - whatever the template names
    """Make a text of strangers safe to show to others, and bound it; jinja escapes it later."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(cut(for_others(value), _LONGEST_TEXT))
    return value


def _gap(seconds: float) -> str:
    """Format a gap; a short one in hundredths, rounded down, so that it never looks longer."""
    if abs(seconds) < 10.0:
        return f"{math.floor(100.0 * seconds) / 100.0:.2f} s"
    return format_seconds(seconds)


def _span(first: float, last: float) -> str:
    """Format two times, the second one without its day if that is the same."""
    begin, end = minute(first), minute(last)
    if begin == end:
        return begin
    return f"{begin} to {end[11:] if end[:10] == begin[:10] else end}"


def days_chart(counts: Sequence[tuple[str, int]]) -> Markup:
    """Return a bar for the new entries of each day or month."""
    highest = max(count for _, count in counts)
    labels = [label for label, _ in counts]
    chart = pygal.Bar(
        **_PLAIN,
        height=180,
        range=(0, max(highest, 1)),
        show_minor_x_labels=False,
        value_formatter="{:,.0f}".format,
    )
    chart.x_labels = labels
    chart.x_labels_major = labels[:: -(-len(counts) // 8)]
    chart.y_labels = sorted({0, highest // 2, highest})
    chart.add("", [count for _, count in counts])
    when = next(label for label, count in counts if count == highest)
    told = f"The most are {highest:,}, at {when}."
    return _svg(chart, "days", "New entries by day", told)


def answers_chart(counts: Mapping[str, int]) -> Markup:
    """Return a bar for each kind of response, with its number."""
    told = [f"{KINDS[kind]}, {count:,}" for kind, count in counts.items()]
    chart = pygal.HorizontalBar(
        **_PLAIN | {"margin_left": 60},
        height=20 + 28 * len(told),
        show_y_guides=False,
        show_x_labels=False,
    )
    # The first one is drawn at the bottom.
    chart.x_labels = told[::-1]
    chart.add("", list(counts.values())[::-1])
    return _svg(chart, "answers", "Responses by kind", "; ".join(told))


def _svg(chart: Any, name: str, title: str, told: str) -> Markup:  # noqa: ANN401 - of pygal
    """Draw a chart with its title and description, and without the scripts and styles of pygal."""

    def named(root: Any) -> Any:  # noqa: ANN401 - of lxml, or of the standard library
        root.remove(root.find("defs"))
        for element in root.iter("*"):
            element.attrib.pop("style", None)
        heading = root.find("title")
        heading.text = title
        heading.attrib["id"] = f"{name}-title"
        description = root.makeelement("desc", {"id": f"{name}-desc"})
        description.text = told
        root.insert(1, description)
        labels = f"{name}-title {name}-desc"
        root.attrib.update({"id": name, "role": "img", "aria-labelledby": labels})
        return root

    chart.add_xml_filter(named)
    return Markup(chart.render(is_unicode=True))  # noqa: S704 - drawn from numbers, serialized
