"""The report as one HTML page: self-contained, without scripts, safe for strangers' texts.

Its pictures are bars in SVG without a view box: their widths are percentages, so the text of a
picture is as large as that of the page on every screen.
"""

from __future__ import annotations

import base64
import math
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from walsh_scrapy.policy.wording import count_of, cut, for_others, format_seconds, printable
from walsh_scrapy.tools.report.facts import ANSWERS
from walsh_scrapy.tools.report.pace import GAPS
from walsh_scrapy.tools.show import name_program, to_the_minute

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAX_TEXT_LENGTH: Final = 600
#: Where bars begin and end, in percent of a picture. Labels are before, and numbers after them.
_LEFT: Final = 28.0
_RIGHT: Final = 88.0
#: The width of a part that is much smaller than others, in percent too.
_MIN_WIDTH: Final = 0.5


def render(facts: Mapping[str, Any]) -> str:
    """Return the page about the facts that `gather` returns."""
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
    # The style sheet has no text of strangers, and the page's policy names its hash.
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


def _make_safe(value: Any) -> Any:  # noqa: ANN401 - whatever the template names
    """Make a text of strangers safe to show to others, and bound it; jinja escapes it later."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(cut(for_others(value), _MAX_TEXT_LENGTH))
    return value


def _is_link(url: str | None) -> bool:
    """Return True for an http or https URL without credentials, which would lose them."""
    return url is not None and url.startswith(("http://", "https://")) and url == for_others(url)


def _count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun, as in 1,234 sources."""
    noun = count_of(number, singular, plural).partition(" ")[2]
    return f"{number:,} {noun}"


def _format_gap(seconds: float) -> str:
    """Format a gap; a short one in hundredths, rounded down, so that it never looks longer."""
    if abs(seconds) < 10.0:
        return f"{math.floor(100.0 * seconds) / 100.0:.2f} s"
    return format_seconds(seconds)


class Bar(NamedTuple):
    """One bar of a picture: its label, its parts, and the number after them."""

    label: str
    parts: list[tuple[str, float, float]]  #: name, begin and width in percent of the picture
    end: float  #: in percent too
    total: int


def draw_bars(rows: Mapping[str, Mapping[str, int]]) -> list[Bar]:
    """Return a bar for each row; the longest fills the picture. A row has counts by name."""
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
