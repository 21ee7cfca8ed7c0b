"""Durations: ISO-8601 in documents (R3 `refresh`, `every` and `pause` of a source), and as text."""

import re
from datetime import timedelta
from typing import Final

_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_DURATION: Final = re.compile(
    rf"P(?=.)(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_UNITS: Final = ("weeks", "days", "hours", "minutes", "seconds")
_STEPS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def parse_duration(text: str) -> timedelta:
    """Read an ISO-8601 duration in weeks, days, hours, minutes and seconds.

    Capital letters and ASCII digits, as in the standard; a decimal fraction, after a point or a
    comma, in the smallest part only. Raises ValueError, with a message of one sentence, for
    everything else, also for years and months, whose lengths vary, and for signs.

    >>> parse_duration("P1DT12H30M")
    datetime.timedelta(days=1, seconds=45000)
    """
    found = _DURATION.fullmatch(text)
    shown = text if len(text) <= 40 else text[:40] + "…"
    if not found:
        raise ValueError(
            f"{shown!r} is not an ISO-8601 duration of weeks, days, hours, minutes and seconds; "
            "write for example PT6H or P1D"
        )
    parts = {unit: number for unit, number in zip(_UNITS, found.groups(), strict=True) if number}
    *larger, _ = parts.values()
    if any(not number.isdigit() for number in larger):
        raise ValueError(f"{shown!r} has a decimal fraction that is not in its smallest part")
    try:
        return timedelta(**{unit: float(n.replace(",", ".")) for unit, n in parts.items()})
    except (OverflowError, ValueError):
        raise ValueError(f"{shown!r} is longer than can be counted") from None


def format_seconds(seconds: float) -> str:
    """Format a duration for operators, in its two largest units; "0 s" if negative or NaN.

    >>> format_seconds(7512), format_seconds(0.5)
    ('2 h 5 min', '0.5 s')
    """
    if not seconds >= 0:
        return "0 s"
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    if seconds == float("inf"):
        return "forever"
    left, parts = round(seconds), list[str]()
    for unit, size in _STEPS:
        if count := left // size:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        left %= size
    return " ".join(parts[:2])
