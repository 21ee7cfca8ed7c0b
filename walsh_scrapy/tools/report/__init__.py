"""``walsh report``: an HTML page about the last crawl, or about everything since a moment.

The page has no scripts, and texts of sites are harmless in it. The bar charts are SVG without a
view box, with widths in percent, so that the text in a chart is always as large as the text of the
page.
"""

from __future__ import annotations

import base64
import math
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from walsh_scrapy.policy.wording import count_of, cut, for_others, format_seconds, printable
from walsh_scrapy.tools.call import Output
from walsh_scrapy.tools.report.facts import ANSWERS, GAPS
from walsh_scrapy.tools.show import name_program, to_the_minute
from walsh_scrapy.tools.status import find_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Write the page, and print what it is about on standard error."""
    from walsh_scrapy.tools.report.facts import choose_period, gather

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
